# Every C file is as clang-format leaves it. Other versions of clang-format lay code out differently, so only the one that
# .clang-format was written for is asked.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)
set(version 14)

find_program(clang_format NAMES clang-format-${version} clang-format)
if(NOT clang_format)
  lint_skip("format: no clang-format")
endif()
execute_process(COMMAND ${clang_format} --version OUTPUT_VARIABLE said)
if(NOT said MATCHES "version ${version}\\.")
  string(STRIP "${said}" said)
  lint_skip("format: needs clang-format ${version}, found ${said}")
endif()

# check_format(<root>): of the files below it, under the tree's own .clang-format.
function(check_format root)
  lint_files(files ${root} *.c *.h)
  foreach(file ${files})
    lint_checked()
    execute_process(COMMAND ${clang_format} --dry-run -Werror --style=file:${SOURCE}/.clang-format ${root}/${file}
                    RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE errors)
    if(NOT status EQUAL 0)
      string(REGEX MATCH ":([0-9]+):[0-9]+: error" where "${errors}")
      lint_violation("${file}:${CMAKE_MATCH_1}: not as clang-format leaves it")
    endif()
  endforeach()
endfunction()

function(self_test)
  set(root ${BUILD}/lint/format)
  file(REMOVE_RECURSE ${root})
  file(WRITE ${root}/kernels/good.c "int f(int x) { return x + 1; }\n")
  check_format(${root})
  lint_self_test("a good file" 0)
  file(WRITE ${root}/kernels/bad.c "int f(int x)\n{\n  return x+1;\n}\n")
  check_format(${root})
  lint_self_test("a bad file" 1)
endfunction()

self_test()
check_format(${SOURCE})
lint_finish()
