# No text is cut without a word (CONVENTIONS.md): the product formats and copies text through
# kernels/core/text.h alone, whose functions mark a cut with "...", refuse it, or end the program. Raw
# functions of C, and conversions such as %.40s, which drop the rest of a word, are forbidden everywhere else.
# Tests may use them.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)
set(implementation kernels/core/text.c kernels/core/text.h)
set(raw "(^|[^A-Za-z0-9_])(v?sn?printf|strn?cpy|strn?cat|stpn?cpy|strlcpy|strlcat) *\\(")
set(cutting "%[-0-9]*[.][0-9]+s")

# check_text(<root>): every source file of the product below it.
function(check_text root)
  lint_files(files ${root} *.c *.h *.cu *.cuh)
  foreach(file ${files})
    if(file MATCHES "^tests/" OR file IN_LIST implementation)
      continue()
    endif()
    lint_checked()
    file(STRINGS ${root}/${file} suspects REGEX "${raw}|${cutting}")
    if(NOT suspects)
      continue()
    endif()
    lint_lines(lines ${root}/${file})
    set(number 0)
    foreach(line ${lines})
      math(EXPR number "${number} + 1")
      if(line MATCHES "${raw}")
        lint_violation("${file}:${number}: ${CMAKE_MATCH_2} may cut without a word: use kernels/core/text.h")
      elseif(line MATCHES "(${cutting})")
        lint_violation("${file}:${number}: ${CMAKE_MATCH_1} cuts without a word: use %s and ab_text_brief")
      endif()
    endforeach()
  endforeach()
endfunction()

function(self_test)
  set(root ${BUILD}/lint/text)
  file(REMOVE_RECURSE ${root})
  file(WRITE ${root}/kernels/core/text.c "int f(char *t) { return vsnprintf(t, 1, 0, 0); }\n")
  file(WRITE ${root}/bench/good.c
    "void f(char *t) { ab_text_show(t, 9, \"%.*s %.3g %-12s\", 1, t, 1.0, t), my_snprintf(t); }\n")
  file(WRITE ${root}/tests/unit/free.c "void f(char *t) { snprintf(t, 9, \"%.3s\", t); }\n")
  check_text(${root})
  lint_self_test("text through the helpers, and tests" 0)
  file(WRITE ${root}/bench/bad.c
    "void f(char *t) {\n    snprintf(t, 9, \"%s\", t);\n    (void)strncpy (t, t, 3);\n    g(\"%.40s\", \
t);\n}\n")
  file(WRITE ${root}/kernels/bad.cu "void f(char *t) { strcat(t, t); }\n")
  check_text(${root})
  lint_self_test("raw functions and a precision" 4)
endfunction()

self_test()
check_text(${SOURCE})
lint_finish()
