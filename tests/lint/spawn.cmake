# Only kernels/spawn starts processes: what it starts ends with the process that started it.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)

set(functions
  "fork|vfork|_Fork|clone3?|posix_spawnp?|exec[lv]p?e?|execvpe|execveat|fexecve|popen|system|daemon|forkpty")

# check_file(<root> <file>): one violation for each call outside comments and strings.
function(check_file root file)
  lint_checked()
  file(READ ${root}/${file} text)
  string(REGEX REPLACE "\"([^\"\n\\\\]|\\\\.)*\"" "\"\"" text "${text}")
  string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" "" text "${text}")
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REPLACE ";" "," text "${text}")
  string(REGEX MATCHALL "[^A-Za-z0-9_.>](${functions})[ \t]*\\(" calls " ${text}")
  foreach(found ${calls})
    string(REGEX MATCH "[A-Za-z_][A-Za-z0-9_]*" name "${found}")
    lint_violation("${file}: ${name} starts a process that may outlive this one: use kernels/spawn/spawn.h")
  endforeach()
endfunction()

function(check_tree root)
  foreach(folder ${lint_rooms})
    file(GLOB_RECURSE files RELATIVE ${root} ${root}/${folder}/*.c ${root}/${folder}/*.h
      ${root}/${folder}/*.cu
      ${root}/${folder}/*.cuh)
    list(FILTER files EXCLUDE REGEX "^kernels/spawn/")
    foreach(file ${files})
      check_file(${root} ${file})
    endforeach()
  endforeach()
endfunction()

function(self_test)
  set(root ${BUILD}/lint/spawn)
  file(REMOVE_RECURSE ${root})
  file(WRITE ${root}/kernels/spawn/spawn.c "pid_t f(void) { return fork(); }\n")
  file(WRITE ${root}/bench/good.c
    "/* fork(), */ int system_of(int), x = p->system(1); char *t = \"popen(\";\n")
  check_tree(${root})
  lint_self_test("calls in kernels/spawn, and names that are like them" 0)
  file(WRITE ${root}/bench/bad.c "int f(void) { return system(t) + (fork() == 0); }\n")
  file(WRITE ${root}/reports/bad.c "int f(void) {\n    return posix_spawnp(&pid, 0, 0, 0, 0, 0); }\n")
  check_tree(${root})
  lint_self_test("calls elsewhere" 3)
endfunction()

self_test()
check_tree(${SOURCE})
lint_finish()
