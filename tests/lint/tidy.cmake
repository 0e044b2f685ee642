# clang-tidy over the rooms with the checks of .clang-tidy, a file a process. Newer versions know other
# checks, so only the one that .clang-tidy was written for is asked. Tests are left out: the macros of cmocka
# are not ours to judge.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)
set(version 14)

find_program(clang_tidy NAMES clang-tidy-${version} clang-tidy)
if(NOT clang_tidy)
  lint_skip("tidy: no clang-tidy")
endif()
execute_process(COMMAND ${clang_tidy} --version OUTPUT_VARIABLE said)
if(NOT said MATCHES "version ${version}\\.")
  string(REGEX MATCH "version [0-9.]+" said "${said}")
  lint_skip("tidy: needs clang-tidy ${version}, found ${said}")
endif()
if(NOT EXISTS ${BUILD}/compile_commands.json)
  lint_skip("tidy: ${BUILD} has no compile_commands.json; configure with a preset")
endif()

cmake_host_system_information(RESULT processes QUERY NUMBER_OF_LOGICAL_CORES)

# analyse(<file of paths> <arguments>...): every diagnostic becomes a violation.
function(analyse paths)
  execute_process(COMMAND xargs -P ${processes} -n 1 ${clang_tidy} --quiet --config-file=${SOURCE}/.clang-tidy
    ${ARGN}
                  INPUT_FILE ${paths} OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE status)
  string(REPLACE ";" "," output "${output}")
  string(REGEX MATCHALL "[^\n]+: (error|warning): [^\n]+" found "${output}")
  list(REMOVE_DUPLICATES found)
  foreach(diagnostic ${found})
    string(REPLACE "${SOURCE}/" "" diagnostic "${diagnostic}")
    string(REPLACE ",-warnings-as-errors" "" diagnostic "${diagnostic}")
    lint_violation("${diagnostic}")
  endforeach()
  if(NOT status EQUAL 0 AND "${found}" STREQUAL "")
    message(FATAL_ERROR "clang-tidy failed: ${errors}")
  endif()
endfunction()

# What the analyser is told beforehand, and the flags of gcc that it does not know.
set(known --extra-arg=-Wno-unknown-warning-option)
set(arguments -p ${BUILD} ${known} --extra-arg-before=-I${SOURCE})
set(told --extra-arg-before=-include --extra-arg-before=${SOURCE}/tests/lint/lib/analysis.h)

function(self_test)
  set(folder ${BUILD}/lint/tidy)
  string(REPEAT "    x++;\n" 80 body)
  file(WRITE ${folder}/good.c "int f(int x);\nint f(int x) { return x + 1; }\n")
  file(WRITE ${folder}/bad.c
    "#include <stdlib.h>\nint g(void);\nint g(void) {\n    int *p = malloc(sizeof *p);\n    if (!p) \
return 0;\n"
       "    *p = 1;\n    free(p);\n    return *p;\n}\nint h(int x);\nint h(int x) {\n${body}    return \
x;\n}\n")
  file(WRITE ${folder}/good "${folder}/good.c\n")
  analyse(${folder}/good ${known})
  lint_self_test("a good file" 0)
  file(WRITE ${folder}/bad "${folder}/bad.c\n")
  analyse(${folder}/bad ${known})
  lint_self_test("a use after free and a function of 83 lines" 2)
endfunction()

# The files that were compiled, from the compilation database, as far as they are ours and still there.
function(list_sources ours alone)
  file(STRINGS ${BUILD}/compile_commands.json lines REGEX "\"file\":")
  set(files "")
  foreach(line ${lines})
    string(REGEX REPLACE ".*\"file\": \"([^\"]*)\".*" "\\1" file "${line}")
    if(file MATCHES "^${SOURCE}/(kernels|probes|reports|bench)/.*[.]c$" AND EXISTS ${file})
      list(APPEND files ${file})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES files)
  list(SORT files)
  list(REMOVE_ITEM files ${SOURCE}/kernels/core/status.c) # defines what analysis.h stands in for
  foreach(file ${files})
    lint_checked()
  endforeach()
  string(REPLACE ";" "\n" files "${files}\n")
  file(WRITE ${ours} "${files}")
  file(WRITE ${alone} "${SOURCE}/kernels/core/status.c\n")
endfunction()

self_test()
list_sources(${BUILD}/lint/tidy/sources ${BUILD}/lint/tidy/status)
analyse(${BUILD}/lint/tidy/sources ${arguments} ${told})
analyse(${BUILD}/lint/tidy/status ${arguments})
lint_finish()
