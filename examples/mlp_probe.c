/* A multi-layer perceptron on Fashion-MNIST, trained in plain C: fp32 weights, gradients in half precision, a
 * loss scale by hand. libampprobe records the training; `ampbench diagnose` reads the record.
 * docs/libampprobe.md explains the calls.
 *
 *     cc -O2 mlp_probe.c -o mlp_probe $(pkg-config --cflags --libs ampprobe) -lm
 *     ./mlp_probe /usr/share/datasets/fashion-mnist 1024 run.ampprobe.json
 *     ampbench diagnose run.ampprobe.json */
#define _POSIX_C_SOURCE 200809L
#include <ampprobe.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 784, HIDDEN = 64, OUT = 10, BATCH = 32, STEPS = 300, SAMPLES = BATCH * STEPS, PARAMETERS = 4 };

static unsigned char images[SAMPLES][IN], labels[SAMPLES];
static float w1[HIDDEN][IN], b1[HIDDEN], w2[OUT][HIDDEN], b2[OUT];
static float g_w1[HIDDEN][IN], g_b1[HIDDEN], g_w2[OUT][HIDDEN], g_b2[OUT]; /* times the loss scale */
static float x[BATCH][IN], h[BATCH][HIDDEN], z[BATCH][OUT], g_h[BATCH][HIDDEN], g_z[BATCH][OUT];

static struct {
    const char *name;
    float *weight, *grad;
    int rows, columns;
} parameter[PARAMETERS] = {{"fc1.weight", w1[0], g_w1[0], HIDDEN, IN},
                           {"fc1.bias", b1, g_b1, HIDDEN, 1},
                           {"fc2.weight", w2[0], g_w2[0], OUT, HIDDEN},
                           {"fc2.bias", b2, g_b2, OUT, 1}};

/* The nearest fp16 number: 11 bits, smallest 2^-24, infinity from 65520 on. */
static float half(float v) {
    if (!isfinite(v) || v == 0) return v;
    if (fabsf(v) >= 65520) return v > 0 ? INFINITY : -INFINITY;
    const float unit = ldexpf(1, (ilogbf(v) < -14 ? -14 : ilogbf(v)) - 10);
    return nearbyintf(v / unit) * unit;
}

static void read_file(const char *folder, const char *name, size_t header, void *to, size_t size) {
    char command[512], skipped[16];
    snprintf(command, sizeof command, "gzip -dc '%s/%s'", folder, name);
    FILE *file = popen(command, "r");
    if (!file || fread(skipped, 1, header, file) != header || fread(to, 1, size, file) != size) exit(2);
    while (fread(command, 1, sizeof command, file) > 0) {
    }
    pclose(file);
}

/* Forward and backward of one batch; gradients are half precision. Returns the loss. */
static double train_batch(int step, float scale) {
    double loss = 0;
    for (int i = 0; i < BATCH; i++) {
        float sum = 0, largest = -INFINITY;
        for (int k = 0; k < IN; k++) x[i][k] = (float)images[step * BATCH + i][k] / 255 - 0.3f;
        for (int j = 0; j < HIDDEN; j++) {
            h[i][j] = b1[j];
            for (int k = 0; k < IN; k++) h[i][j] += w1[j][k] * x[i][k];
            h[i][j] = h[i][j] > 0 ? half(h[i][j]) : 0;
        }
        for (int j = 0; j < OUT; j++) {
            z[i][j] = b2[j];
            for (int k = 0; k < HIDDEN; k++) z[i][j] += w2[j][k] * h[i][k];
            largest = fmaxf(largest, z[i][j]);
        }
        for (int j = 0; j < OUT; j++) sum += expf(z[i][j] - largest);
        for (int j = 0; j < OUT; j++) {
            const int right = labels[step * BATCH + i] == j;
            if (right) loss += (logf(sum) + largest - z[i][j]) / BATCH;
            g_z[i][j] = half((expf(z[i][j] - largest) / sum - (float)right) / BATCH * scale);
        }
        for (int k = 0; k < HIDDEN; k++) {
            g_h[i][k] = 0;
            for (int j = 0; j < OUT; j++) g_h[i][k] += h[i][k] > 0 ? w2[j][k] * g_z[i][j] : 0;
            g_h[i][k] = half(g_h[i][k]);
        }
    }
    for (int p = 0; p < PARAMETERS; p++) {
        const int rows = parameter[p].rows, columns = parameter[p].columns;
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) {
                float sum = 0;
                for (int i = 0; i < BATCH; i++)
                    sum += (p < 2 ? g_h[i][r] : g_z[i][r]) * (p == 0 ? x[i][c] : p == 2 ? h[i][c] : 1);
                parameter[p].grad[r * columns + c] = half(sum);
            }
    }
    return loss;
}

/* A tensor of contiguous fp32 values. */
static ampprobe_tensor shown(int id, int role, const float *values, int64_t count) {
    const ampprobe_tensor t = {.id = id,
                               .role = role,
                               .dtype = AMPPROBE_FP32,
                               .data = values,
                               .count = count,
                               .stride = 1,
                               .storage_bytes = 4 * count};
    return t;
}

/* Ends the program if the probe does not work at the start; later a probe that fails turns itself off. */
static void must(int status) {
    if (status != AMPPROBE_OK) fprintf(stderr, "ampprobe: %s\n", ampprobe_error());
    if (status != AMPPROBE_OK) exit(2);
}

int main(int argc, char **argv) {
    const float lr = 0.1f, scale = argc == 4 ? strtof(argv[2], NULL) : 0;
    ampprobe *probe;
    int32_t id[PARAMETERS];
    if (scale <= 0) return fprintf(stderr, "usage: mlp_probe DATA_FOLDER LOSS_SCALE RECORD.json\n"), 2;
    read_file(argv[1], "train-images-idx3-ubyte.gz", 16, images, sizeof images);
    read_file(argv[1], "train-labels-idx1-ubyte.gz", 8, labels, sizeof labels);

    must(ampprobe_open(
        argv[3],
        "{\"model\": \"mlp\", \"data\": \"fashion_mnist\", \"level\": \"hand-made\", \"batch\": 32, "
        "\"language\": \"C\", \"probe_every\": 5, \"groups\": [{\"optimizer\": \"sgd\", \"lr\": 0.1}]}",
        &probe));
    for (int p = 0; p < PARAMETERS; p++) {
        const ampprobe_thing thing = {.size = sizeof thing,
                                      .flags = AMPPROBE_PARAMETER,
                                      .name = parameter[p].name,
                                      .type = "Linear",
                                      .dimensions = 2,
                                      .shape = {parameter[p].rows, parameter[p].columns}};
        must(ampprobe_describe(probe, &thing, 1, &id[p]));
        for (int i = 0; i < parameter[p].rows * parameter[p].columns && parameter[p].columns > 1; i++)
            parameter[p].weight[i] =
                ((float)rand() / (float)RAND_MAX - 0.5f) / sqrtf((float)parameter[p].columns);
    }
    for (int step = 0; step < STEPS; step++) {
        const double loss = train_batch(step, scale);
        ampprobe_tensor grad[PARAMETERS], weight[2 * PARAMETERS];
        int finite = 1;
        const int plan = ampprobe_plan(probe, step);
        for (int p = 0; p < PARAMETERS; p++) {
            const int64_t count = (int64_t)parameter[p].rows * parameter[p].columns;
            grad[p] = shown(id[p], AMPPROBE_WEIGHT_GRADIENT, parameter[p].grad, count);
            weight[2 * p] = shown(id[p], AMPPROBE_WEIGHT, parameter[p].weight, count);
            weight[2 * p + 1] = shown(id[p], AMPPROBE_UNSCALED_GRADIENT, parameter[p].grad, count);
        }
        ampprobe_gradients(probe, 0, grad, PARAMETERS, 0, NULL);
        if (plan & AMPPROBE_PLAN_LAYERS) { /* what a layer computed, and its gradient */
            ampprobe_tensor layer = shown(0, AMPPROBE_ACTIVATION, h[0], BATCH * HIDDEN);
            ampprobe_see_named(probe, "fc1", &layer);
            layer = shown(0, AMPPROBE_ACTIVATION_GRADIENT, g_z[0], BATCH * OUT);
            ampprobe_see_named(probe, "fc2", &layer);
        }
        for (int p = 0; p < PARAMETERS; p++) /* the finite check, while unscaling */
            for (int i = 0; i < grad[p].count; i++) {
                finite = finite && isfinite(parameter[p].grad[i]);
                parameter[p].grad[i] /= scale;
            }
        if (plan & AMPPROBE_PLAN_UPDATE) ampprobe_before_update(probe, 0, weight, 2 * PARAMETERS);
        for (int p = 0; p < PARAMETERS && finite; p++)
            for (int i = 0; i < grad[p].count; i++) parameter[p].weight[i] -= lr * parameter[p].grad[i];
        if (finite && plan & AMPPROBE_PLAN_UPDATE) ampprobe_after_update(probe, 0, weight, 2 * PARAMETERS);
        ampprobe_step_facts facts = {.size = sizeof facts,
                                     .step = step,
                                     .loss = loss,
                                     .lr = (double)lr,
                                     .flags = AMPPROBE_HAS_SCALE | AMPPROBE_HAS_LOSS | AMPPROBE_HAS_LR,
                                     .scale_before = (double)scale,
                                     .scale_after = (double)scale,
                                     .found_inf = !finite,
                                     .stepped = finite};
        ampprobe_step(probe, &facts);
        if (step % 100 == 99) printf("step %d: loss %.4f%s\n", step + 1, loss, finite ? "" : ", skipped");
    }
    must(ampprobe_close(probe));
    return 0;
}
