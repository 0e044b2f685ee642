/* Opens and closes what commands write. */
#include "reports/record/output.h"

#include "kernels/files/lock.h"

ab_status ab_output_open(const char *option, const char *path, ab_outfile *out) {
    *out = (ab_outfile){0};
    AB_TRY(ab_lock_check(option, path));
    ab_outfile_remove_stale(path);
    ab_status status = ab_outfile_open(path, out);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "%s", option);
}

ab_status ab_output_close(const char *option, ab_outfile *out, ab_status status) {
    ab_status closed = ab_outfile_close(out, status);
    return closed == status ? status : ab_fail_prefix(closed, "%s", option);
}
