# clang over the C files of the rooms that this build compiled, with the build's own flags; writes nothing.
# It warns of what gcc does not (signs of enumerations), and the fuzzers, which clang builds, must not be the
# first to say so.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/lib/compiled.cmake)

find_program(clang NAMES clang)
if(NOT clang)
  lint_skip("clang: no clang")
endif()
if(NOT EXISTS ${BUILD}/compile_commands.json)
  lint_skip("clang: ${BUILD} has no compile_commands.json; configure with a preset")
endif()

cmake_host_system_information(RESULT processes QUERY NUMBER_OF_LOGICAL_CORES)

# check_commands(<file of commands, a line each>): every diagnostic becomes a violation.
function(check_commands commands)
  execute_process(COMMAND xargs -d "\\n" -P ${processes} -n 1
    sh -c "said=$(eval \"$0\" 2>&1) || { echo \"$said\"; exit 1; }"
    INPUT_FILE ${commands} OUTPUT_VARIABLE said RESULT_VARIABLE status)
  string(REPLACE ";" "," said "${said}")
  string(REGEX MATCHALL "[^\n]+: (fatal error|error|warning): [^\n]+" found "${said}")
  list(REMOVE_DUPLICATES found)
  foreach(diagnostic ${found})
    string(REGEX REPLACE "^[^:]*${SOURCE}/" "" diagnostic "${diagnostic}")
    lint_violation("${diagnostic}")
  endforeach()
  if(NOT status EQUAL 0 AND "${found}" STREQUAL "")
    message(FATAL_ERROR "clang failed: ${said}")
  endif()
endfunction()

set(quiet "-fsyntax-only -Wno-unknown-warning-option -Wno-ignored-optimization-argument")

function(self_test)
  set(folder ${BUILD}/lint/clang)
  file(WRITE ${folder}/good.c "int f(int x);\nint f(int x) { return x + 1; }\n")
  file(WRITE ${folder}/bad.c
    "enum e { A };\nint f(int x);\nint g(enum e x);\nint g(enum e x) { return f(x); }\n")
  file(WRITE ${folder}/good "${clang} -Werror -Wsign-conversion ${quiet} ${folder}/good.c\n")
  check_commands(${folder}/good)
  lint_self_test("a good file" 0)
  file(WRITE ${folder}/bad "${clang} -Werror -Wsign-conversion ${quiet} ${folder}/bad.c\n")
  check_commands(${folder}/bad)
  lint_self_test("an enumeration handed over as an int" 1)
endfunction()

file(WRITE ${BUILD}/lint/clang/commands "")
function(add_command file directory flags)
  lint_checked()
  file(APPEND ${BUILD}/lint/clang/commands "cd ${directory} && ${clang} ${flags} ${quiet} ${file}\n")
endfunction()

self_test()
lint_each_command(add_command)
check_commands(${BUILD}/lint/clang/commands)
lint_finish()
