/* JSON look-ups and exact output. cJSON's own printer is not used: it accepts 15 digits when they come
 * within one part in 2^52 of the value, so a number may not survive a round trip. */
#include "reports/record/json.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const cJSON *ab_json_at(const cJSON *root, const char *path) {
    char key[64];
    while (root && *path) {
        size_t length = strcspn(path, ".");
        if (length >= sizeof key) return NULL;
        memcpy(key, path, length);
        key[length] = '\0';
        root = cJSON_GetObjectItemCaseSensitive(root, key);
        path += length + (path[length] == '.');
    }
    return root;
}

const char *ab_json_text(const cJSON *root, const char *path, const char *fallback) {
    const cJSON *value = ab_json_at(root, path);
    return cJSON_IsString(value) && value->valuestring ? value->valuestring : fallback;
}

double ab_json_number(const cJSON *root, const char *path, double fallback) {
    const cJSON *value = ab_json_at(root, path);
    return cJSON_IsNumber(value) ? value->valuedouble : fallback;
}

bool ab_json_is_true(const cJSON *root, const char *path) { return cJSON_IsTrue(ab_json_at(root, path)); }

const char *ab_json_type_text(const cJSON *value) {
    static const struct {
        int type;
        const char *text;
    } types[] = {{cJSON_False, "false"},     {cJSON_True, "true"},       {cJSON_NULL, "null"},
                 {cJSON_Number, "a number"}, {cJSON_String, "a string"}, {cJSON_Array, "an array"},
                 {cJSON_Object, "an object"}};
    if (!value) return "nothing";
    for (size_t i = 0; i < AB_COUNT_OF(types); i++)
        if ((value->type & 0xff) == types[i].type) return types[i].text;
    return "something else";
}

void ab_json_put(cJSON *object, const char *key, cJSON *item) {
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    cJSON_AddItemToObject(object, key, item);
}

void ab_json_add_text(cJSON *object, const char *key, const char *text) {
    cJSON_AddItemToObject(object, key, text ? cJSON_CreateString(text) : cJSON_CreateNull());
}

void ab_json_add_number(cJSON *object, const char *key, double value) {
    cJSON_AddItemToObject(object, key, isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull());
}

void ab_json_add_known(cJSON *object, const char *key, double value, bool known) {
    ab_json_add_number(object, key, known ? value : (double)NAN);
}

void ab_json_print_number(double x, FILE *out) {
    char text[AB_TEXT_ROUND_TRIP];
    if (!isfinite(x)) {
        fputs("null", out);
        return;
    }
    if (x == trunc(x) && fabs(x) <= AB_JSON_MAX_INTEGER) {
        fprintf(out, "%.0f", x);
        return;
    }
    fputs(ab_text_round_trip(text, x), out);
}

/* Arrays of numbers are printed on one line, which is easier to read and to diff. */
static bool fits_one_line(const cJSON *array) {
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (cJSON_IsObject(item)) return false;
    }
    return true;
}

/* Depth of values that stay on one line. */
enum { ONE_LINE = -1 };

static int deeper(int depth) { return depth == ONE_LINE ? ONE_LINE : depth + 1; }

static void new_line(int depth, FILE *out) { fprintf(out, "\n%*s", 2 * depth, ""); }

static void print_value(const cJSON *value, int depth, FILE *out);

static void print_members(const cJSON *value, bool spread, int depth, FILE *out) {
    const cJSON *item;
    cJSON_ArrayForEach(item, value) {
        if (spread) new_line(deeper(depth), out);
        if (cJSON_IsObject(value)) {
            ab_json_put_text(out, item->string ? item->string : "");
            fputs(": ", out);
        }
        print_value(item, deeper(depth), out);
        if (item->next) fputs(spread ? "," : ", ", out);
    }
    if (spread) new_line(depth, out);
}

static void print_value(const cJSON *value, int depth, FILE *out) {
    if (cJSON_IsObject(value)) {
        fputc('{', out);
        print_members(value, value->child && depth != ONE_LINE, depth, out);
        fputc('}', out);
    } else if (cJSON_IsArray(value)) {
        fputc('[', out);
        print_members(value, depth != ONE_LINE && !fits_one_line(value), depth, out);
        fputc(']', out);
    } else if (cJSON_IsString(value)) {
        ab_json_put_text(out, value->valuestring ? value->valuestring : "");
    } else if (cJSON_IsNumber(value)) {
        ab_json_print_number(value->valuedouble, out);
    } else {
        fputs(cJSON_IsTrue(value) ? "true" : cJSON_IsFalse(value) ? "false" : "null", out);
    }
}

void ab_json_print(const cJSON *value, FILE *out) {
    print_value(value, 0, out);
    fputc('\n', out);
}

void ab_json_print_line(const cJSON *value, FILE *out) {
    print_value(value, ONE_LINE, out);
    fputc('\n', out);
}

ab_status ab_json_write_file(const cJSON *value, const char *path) {
    ab_outfile out;
    AB_TRY(ab_output_open("--json", path, &out));
    ab_json_print(value, out.stream);
    return ab_output_close("--json", &out, AB_OK);
}
