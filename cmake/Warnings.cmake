# ampbench_flags: what every C file of the project is compiled with. Floating point is never contracted or
# relaxed: the same source must give the same bits on every compiler.
# ampbench_plain_flags: the same without OpenMP, for libampprobe, which needs libc and libm only.
add_library(ampbench_flags INTERFACE)
add_library(ampbench_plain_flags INTERFACE)
target_link_libraries(ampbench_flags INTERFACE ampbench_plain_flags)
target_compile_features(ampbench_plain_flags INTERFACE c_std_11)
set(ab_warnings
    -Wall -Wextra -Wpedantic -Wconversion -Wdouble-promotion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    -Wundef -Wwrite-strings -Wformat=2 -Wvla -Wswitch-enum -Wno-unknown-pragmas)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND ab_warnings -Wlogical-op -Wduplicated-cond -Wduplicated-branches)
endif()
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  # a loop that this compiler does not vectorise is slower, not wrong
  list(APPEND ab_warnings -Wno-pass-failed)
endif()
if(AMPBENCH_WERROR)
  list(APPEND ab_warnings -Werror)
endif()
target_compile_options(ampbench_plain_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:${ab_warnings} -ffp-contract=off
  -fno-math-errno>)
if(AMPBENCH_SANITIZE)
  target_compile_options(ampbench_plain_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-fsanitize=${AMPBENCH_SANITIZE}
                                                  -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(ampbench_plain_flags INTERFACE -fsanitize=${AMPBENCH_SANITIZE})
endif()
target_include_directories(ampbench_plain_flags INTERFACE ${PROJECT_SOURCE_DIR}
  ${PROJECT_BINARY_DIR}/generated)
target_link_libraries(ampbench_plain_flags INTERFACE m)
target_link_libraries(ampbench_flags INTERFACE OpenMP::OpenMP_C)
