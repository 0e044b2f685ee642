/* The table of commands. */
#include "bench/cmd/commands.h"

#include "bench/cmd/cmd.h"

const ab_command ab_commands[] = {
#define AB_COMMAND(name, text) {#name, text, ab_cmd_##name},
#include "bench/cmd/commands.def"
#undef AB_COMMAND
};

const char *const ab_command_names[] = {
#define AB_COMMAND(name, text) #name,
#include "bench/cmd/commands.def"
#undef AB_COMMAND
};

const int ab_command_count = AB_COUNT_OF(ab_commands);
