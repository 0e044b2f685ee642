# Finds oneDNN 2.6 or 3.x without its own package file, which on Debian 12 also demands OpenCL.
# -DDNNL_ROOT=prefix chooses another installation. Defines the target DNNL::dnnl and DNNL_VERSION.
# A build whose threads are not OpenMP's is not found, and DNNL_THREADS names them: it would not keep to the
# number of threads of a run (kernels/onednn/dnnl_usable.c, which checks again when a program starts).
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(DNNL_LIBRARY dnnl)
if(DNNL_INCLUDE_DIR AND EXISTS "${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h")
  file(STRINGS "${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" dnnl_lines
    REGEX "DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3"
    DNNL_VERSION "${dnnl_lines}")
endif()
set(DNNL_THREADS "")
if(DNNL_INCLUDE_DIR AND EXISTS "${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h")
  file(STRINGS "${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h" dnnl_lines
    REGEX "define DNNL_CPU_RUNTIME +DNNL_RUNTIME_")
  string(REGEX REPLACE ".*DNNL_RUNTIME_([A-Z]+).*" "\\1" DNNL_THREADS "${dnnl_lines}")
endif()
set(DNNL_KEEPS_TO_THREADS TRUE)
if(DNNL_THREADS AND NOT DNNL_THREADS MATCHES "^(OMP|SEQ)$")
  set(DNNL_KEEPS_TO_THREADS FALSE)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DNNL REQUIRED_VARS DNNL_LIBRARY DNNL_INCLUDE_DIR DNNL_KEEPS_TO_THREADS
  VERSION_VAR DNNL_VERSION)
if(DNNL_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${DNNL_LIBRARY}"
                                              INTERFACE_INCLUDE_DIRECTORIES "${DNNL_INCLUDE_DIR}")
endif()
mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
