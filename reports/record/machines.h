/* The machines of a sweep (--launch): which one ran a cell, and which cells' speeds can be compared. */
#ifndef AB_REPORTS_RECORD_MACHINES_H
#define AB_REPORTS_RECORD_MACHINES_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

AB_BEGIN_DECLS

/* The machines of a document by index, so that the machine of a cell is found at once. All zero for a
 * document of one machine. */
typedef struct ab_machines {
    const cJSON **machine; /* [count]; owned */
    int count;
} ab_machines;

/* Lists document.machines; false: out of memory. ab_machines_clear in any case. */
AB_MUST_CHECK bool ab_machines_create(const cJSON *document, ab_machines *machines);
void ab_machines_clear(ab_machines *machines);

/* The machine that ran the cell; NULL: the document is of one machine, or the cell has not run. */
const cJSON *ab_machines_of(const ab_machines *machines, const cJSON *cell);

/* Whether the speeds of two cells can be compared: both are of machines of one class, or the document is of
 * one machine. */
bool ab_machines_alike(const ab_machines *machines, const cJSON *a, const cJSON *b);

/* Number of machines of the class of machine `index` if that is the first of its class; else 0. */
int ab_machines_of_class(const ab_machines *machines, int index);

/* Number of classes among the machines. */
int ab_machines_classes(const ab_machines *machines);

/* "node7 (AMD EPYC, avx512, 4 threads)" of a machine in text[size]; returns it. The text is clean. */
const char *ab_machine_text(const cJSON *machine, char *text, size_t size);

AB_END_DECLS

#endif
