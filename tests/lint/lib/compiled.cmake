# lint_each_command(<function>): calls it for every compilation of a C file of the rooms by this build, as far
# as the file is still there, with the file, the folder of the command and the compiler's flags. Tests are
# left out: the macros of cmocka are not ours to judge.
function(lint_each_command callback)
  file(STRINGS ${BUILD}/compile_commands.json lines REGEX "\"(directory|command|file)\": ")
  foreach(line ${lines})
    string(REGEX REPLACE ",$" "" line "${line}")
    string(REGEX MATCH "[a-z]+" key "${line}")
    string(JSON ${key} GET "{${line}}" ${key})
    if(NOT key STREQUAL "file" OR NOT EXISTS "${file}" OR
       NOT file MATCHES "^${SOURCE}/(kernels|probes|reports|bench)/.*[.]c$")
      continue()
    endif()
    string(REGEX REPLACE "^[^ ]*( +[^ -][^ ]*)* +(-.*) -o .*$" "\\2" flags "${command}")
    cmake_language(CALL ${callback} "${file}" "${directory}" "${flags}")
  endforeach()
endfunction()
