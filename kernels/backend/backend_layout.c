/* Checks that the field tables are complete and that a backend's table has this version. */
#include "kernels/backend/backend_layout.h"

AB_DEVICE_FIELDS(AB_LAYOUT_IS_WHOLE_FIRST, AB_LAYOUT_IS_WHOLE, AB_LAYOUT_IS_WHOLE_LAST)
AB_BACKEND_FIELDS(AB_LAYOUT_IS_WHOLE_FIRST, AB_LAYOUT_IS_WHOLE, AB_LAYOUT_IS_WHOLE_LAST)

ab_status ab_backend_check(const ab_backend *backend) {
    if (backend->abi == AB_DEVICE_ABI && backend->layout() == ab_backend_layout()) return AB_OK;
    return ab_fail(AB_UNAVAILABLE, "the %s backend was built for another version of ampbench", backend->kind);
}
