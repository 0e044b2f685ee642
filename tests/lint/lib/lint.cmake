# Shared by the lints: which files there are, how a lint ends. A lint prints one line per violation, "file:
# what is wrong", and ends with lint_finish(). SOURCE is the tree, BUILD the build folder.
cmake_minimum_required(VERSION 3.22)
set_property(GLOBAL PROPERTY lint_violations "")
set_property(GLOBAL PROPERTY lint_checked 0)

set(lint_rooms kernels probes reports bench)

# lint_files(<variable> <root> <glob>...): files of the rooms and the tests, relative to root.
function(lint_files variable root)
  set(patterns "")
  foreach(folder ${lint_rooms} tests)
    foreach(glob ${ARGN})
      list(APPEND patterns ${root}/${folder}/${glob})
    endforeach()
  endforeach()
  file(GLOB_RECURSE files RELATIVE ${root} ${patterns})
  list(SORT files)
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

# lint_lines(<variable> <file>): its lines, with the characters that CMake's lists cannot hold replaced: ; by
# , and [ ] by ( ). Empty lines are kept as a space, so that the position in the list is the line number.
function(lint_lines variable file)
  file(READ ${file} text)
  string(REGEX REPLACE "\n$" "" text "${text}")
  string(REPLACE ";" "," text "${text}")
  string(REPLACE "[" "(" text "${text}")
  string(REPLACE "]" ")" text "${text}")
  string(REPLACE "\\" "/" text "${text}")
  string(REPLACE "\n" " ;" text "${text} ")
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

function(lint_violation text)
  set_property(GLOBAL APPEND PROPERTY lint_violations "${text}")
endfunction()

# Counts what a lint looked at: a lint that looked at nothing has failed.
function(lint_checked)
  get_property(count GLOBAL PROPERTY lint_checked)
  math(EXPR count "${count} + 1")
  set_property(GLOBAL PROPERTY lint_checked ${count})
endfunction()

# lint_command(<command>...): it must succeed; else what it printed is a violation.
function(lint_command)
  lint_checked()
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    string(REPLACE ";" "," said "${said}")
    string(STRIP "${said}" said)
    lint_violation("${said}")
  endif()
endfunction()

# lint_take_violations(<variable>): the violations so far, which are forgotten. For self-tests.
function(lint_take_violations variable)
  get_property(found GLOBAL PROPERTY lint_violations)
  set_property(GLOBAL PROPERTY lint_violations "")
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()

# lint_self_test(<name> <expected number> <what>): the violations so far must be so many; then they are
# forgotten.
function(lint_self_test name expected)
  lint_take_violations(found)
  list(LENGTH found count)
  if(NOT count EQUAL expected)
    string(REPLACE ";" "\n  " found "${found}")
    message(FATAL_ERROR "self-test ${name}: expected ${expected} violations, found ${count}:\n  ${found}")
  endif()
endfunction()

# CTest reports a lint that prints this as skipped (tests/CMakeLists.txt).
macro(lint_skip why)
  message("SKIPPED: ${why}")
  return()
endmacro()

function(lint_finish)
  get_property(found GLOBAL PROPERTY lint_violations)
  get_property(checked GLOBAL PROPERTY lint_checked)
  foreach(violation ${found})
    message("${violation}")
  endforeach()
  list(LENGTH found count)
  if(count GREATER 0)
    message(FATAL_ERROR "${count} violations")
  elseif(checked EQUAL 0)
    message(FATAL_ERROR "nothing was checked")
  endif()
  message(STATUS "${checked} checked")
endfunction()
