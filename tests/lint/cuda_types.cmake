# A type of a .cu file is in an anonymous namespace, unless its name begins with ab_: two files may have a
# type of the same name, and kernels instantiated with both would be one for the linker. Kernels are
# launched by AB_CUDA_LAUNCH alone, which tests/cuda_host replaces.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)

function(check_types root)
  lint_files(files ${root} *.cu)
  foreach(file ${files})
    lint_checked()
    lint_lines(lines ${root}/${file})
    set(number 0)
    set(inside FALSE)
    foreach(line ${lines})
      math(EXPR number "${number} + 1")
      if(line MATCHES "^ *namespace {")
        set(inside TRUE)
      elseif(line MATCHES "^} // namespace" OR line MATCHES "^    } +/ *$")
        set(inside FALSE)
      elseif(NOT inside AND line MATCHES "^( *template <.*> | *)struct ([A-Za-z0-9_#]+) {")
        set(name ${CMAKE_MATCH_2})
        if(NOT name MATCHES "^ab_")
          lint_violation("${file}:${number}: struct ${name} is in no anonymous namespace")
        endif()
      endif()
      if(line MATCHES "<<<")
        lint_violation("${file}:${number}: a launch without AB_CUDA_LAUNCH")
      endif()
    endforeach()
  endforeach()
endfunction()

function(self_test)
  set(root ${BUILD}/lint/cuda_types)
  file(REMOVE_RECURSE ${root})
  file(WRITE ${root}/kernels/good.cu
    "namespace {\nstruct mine {\n    int n;\n};\n} // namespace\nstruct ab_known {\n    int n;\n};\n")
  check_types(${root})
  lint_self_test("types in an anonymous namespace" 0)
  file(WRITE ${root}/kernels/bad.cu
    "namespace {\nstruct mine {\n};\n} // namespace\ntemplate <typename F> struct value_of {\n};\n\
void f() {\n    kernel<<<1, 1>>>();\n}\n")
  check_types(${root})
  lint_self_test("a type of everybody and a bare launch" 2)
endfunction()

self_test()
check_types(${SOURCE})
lint_finish()
