/* ampbench_schema_check SCHEMA DOCUMENT: exit status 0 if the document follows the schema, 1 if not, 2 if a
 * file is unreadable. */
#include "support/json_file.h"
#include "support/schema_check.h"

int main(int argc, char **argv) {
    char why[1024];
    if (argc != 3) {
        fputs("usage: ampbench_schema_check SCHEMA DOCUMENT\n", stderr);
        return 2;
    }
    cJSON *schema = ab_test_read_json(argv[1]), *document = ab_test_read_json(argv[2]);
    int status = 2;
    if (!schema || !document)
        fprintf(stderr, "%s: not readable as JSON\n", schema ? argv[2] : argv[1]);
    else
        status = !ab_test_schema_validate(schema, document, why, sizeof why);
    if (status == 1) fprintf(stderr, "%s: %s\n", argv[2], why);
    cJSON_Delete(schema);
    cJSON_Delete(document);
    return status;
}
