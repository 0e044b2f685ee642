# Files are written through kernels/files/outfile.h alone: whole or not at all, never through a link. What
# opens a file for writing in another way is named here with the reason.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)
set(implementation
  kernels/files/outfile.c kernels/files/lock.c
  reports/record/journal.c      # appends records
  reports/plot/plots.c          # gnuplot's log, appended to by gnuplot
  bench/gate/source.c            # its lock, and folders that it renames
  bench/gate/child.c)           # outputs of children, created anew in a locked folder
set(opening
  "O_CREAT|O_TRUNC|O_WRONLY|O_RDWR|[^A-Za-z0-9_](f|fre)open \
*\\([^;]*\"[wa][^\"]*\"|[^A-Za-z0-9_](creat|mkstemp|rename) *\\(")

# check_writes(<root>): every source file of the product below it.
function(check_writes root)
  lint_files(files ${root} *.c *.h *.cu *.cuh)
  foreach(file ${files})
    if(file MATCHES "^tests/" OR file IN_LIST implementation)
      continue()
    endif()
    lint_checked()
    file(STRINGS ${root}/${file} suspects REGEX "${opening}")
    foreach(line IN LISTS suspects)
      if(NOT line MATCHES "\"/dev/null\"" AND NOT line MATCHES "^ *(/\\*|\\*|//)")
        string(REPLACE ";" "" line "${line}")
        string(STRIP "${line}" line)
        lint_violation("${file}: writes past kernels/files/outfile.h: ${line}")
      endif()
    endforeach()
  endforeach()
endfunction()

function(self_test)
  set(root ${BUILD}/lint/writes)
  file(REMOVE_RECURSE ${root})
  file(WRITE ${root}/kernels/files/outfile.c "int f(void) { return open(\"a\", O_CREAT | O_WRONLY); }\n")
  file(WRITE ${root}/bench/good.c
    "void f(void) { fopen(p, \"rb\"), fdopen(1, \"wb\"), open(\"/dev/null\", O_RDWR); }\n")
  check_writes(${root})
  lint_self_test("the one writer, and readers" 0)
  file(WRITE ${root}/bench/bad.c
    "void f(void) {\n    FILE *o = fopen(p, \"wb\");\n    fopen(p, \"a\");\n    open(p, O_RDWR);\n    \
rename(a, b);\n}\n")
  check_writes(${root})
  lint_self_test("other ways to write" 4)
endfunction()

self_test()
check_writes(${SOURCE})
lint_finish()
