# Text from outside reaches a terminal or a log through ab_print (kernels/core/show.h) alone, which escapes
# what %s brings. printf and fprintf with %s are for writers of formats that escape by their own rules, which
# are listed here, and for kernels/core itself.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)
set(own_escapes
    bench/help/completion.c # shells; only names of the program
    bench/help/man.c # roff; only the program's help
    bench/run/worker.c # JSON; only numbers and fixed words
    bench/tensorfile/safetensors_write.c # JSON through ab_json_put_text
    reports/inspect/inspection_json.c reports/record/json.c # the same
    reports/render/scaler_trace.c # JSON; only names of the program
    reports/render/html_figures.c reports/render/html_tables.c reports/render/report_html.c
    reports/render/junit.c reports/render/markup.c # HTML and XML: ab_markup_text
    reports/render/report_csv.c)
# reports/plot: ab_text_clean and ab_plot_quote
set(own_folders "^(tests/|kernels/core/|bench/micro/|reports/plot/)")

# check_print(<root>): every source file of the product below it.
function(check_print root)
  lint_files(files ${root} *.c *.h)
  foreach(file ${files})
    if(file MATCHES "${own_folders}" OR file IN_LIST own_escapes)
      continue()
    endif()
    lint_checked()
    file(STRINGS ${root}/${file} suspects REGEX "printf *\\(")
    if(NOT suspects)
      continue()
    endif()
    lint_lines(lines ${root}/${file})
    set(number 0)
    set(statement "")
    foreach(line ${lines})
      math(EXPR number "${number} + 1")
      if(statement STREQUAL "" AND line MATCHES "(^|[^A-Za-z0-9_])[fd]?printf *\\(")
        set(first ${number})
        set(statement " ")
      endif()
      if(NOT statement STREQUAL "")
        string(APPEND statement "${line}")
        if(line MATCHES "[)], *$") # lint_lines writes , for ;
          if(statement MATCHES "%[-0-9.*]*s")
            lint_violation("${file}:${first}: printf with %s prints text from outside as it is: use ab_print \
(kernels/core/show.h)")
          endif()
          set(statement "")
        endif()
      endif()
    endforeach()
  endforeach()
endfunction()

function(self_test)
  set(root ${BUILD}/lint/print)
  file(REMOVE_RECURSE ${root})
  file(WRITE ${root}/bench/good.c
    "void f(char *t) {\n    printf(\"%d %% so\", 1);\n    ab_print(stdout, \"%s\", t);\n    fputs(t, \
stdout);\n}\n")
  file(WRITE ${root}/reports/render/junit.c "void f(char *t) { printf(\"%s\", t); }\n")
  check_print(${root})
  lint_self_test("ab_print, numbers, a writer with its own escapes" 0)
  file(WRITE ${root}/bench/bad.c
    "void f(char *t) {\n    printf(\"%s\", t);\n    fprintf(stderr,\n            \"%d %-20s\", 1, t);\n}\n")
  check_print(${root})
  lint_self_test("printf with %s" 2)
endfunction()

self_test()
check_print(${SOURCE})
lint_finish()
