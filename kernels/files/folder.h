/* Folders that commands write to. */
#ifndef AB_FILES_FOLDER_H
#define AB_FILES_FOLDER_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

/* Creates the folder and its missing parents. AB_OUTPUT names the folder if it cannot be created. */
AB_MUST_CHECK ab_status ab_folder_make(const char *folder);

AB_END_DECLS

#endif
