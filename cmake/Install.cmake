# make install and cpack: the program, manual pages and completions that the program writes itself, documents;
# libampprobe, the only public library, with its header, a pkg-config file and a CMake package; Debian
# packages of the program, the library, what is compiled against it, and Python (python/CMakeLists.txt). Run
# as a script (-D AMPBENCH=<program> -D OUT=<folder> -D GZIP=<gzip or empty>) this file lets the program write
# its pages.
if(CMAKE_SCRIPT_MODE_FILE)
  function(write_from file)
    execute_process(COMMAND ${AMPBENCH} ${ARGN} OUTPUT_FILE ${OUT}/${file} RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "ampbench ${ARGN} failed: ${failed}")
    endif()
  endfunction()
  function(write_page name)
    write_from(man/man1/${name}.1 help --man ${ARGN})
    if(GZIP)
      execute_process(COMMAND ${GZIP} -9nf ${OUT}/man/man1/${name}.1)
    endif()
  endfunction()

  file(REMOVE_RECURSE ${OUT})
  file(MAKE_DIRECTORY ${OUT}/man/man1 ${OUT}/bash-completion/completions ${OUT}/zsh/vendor-completions
    ${OUT}/fish/vendor_completions.d)
  write_page(ampbench)
  get_filename_component(here ${CMAKE_SCRIPT_MODE_FILE} DIRECTORY)
  file(STRINGS ${here}/../bench/cmd/commands.def rows REGEX "^AB_COMMAND\\(")
  foreach(row ${rows})
    string(REGEX REPLACE "^AB_COMMAND\\(([a-z]+).*" "\\1" command "${row}")
    write_page(ampbench-${command} ${command})
  endforeach()
  write_from(bash-completion/completions/ampbench completion bash)
  write_from(zsh/vendor-completions/_ampbench completion zsh)
  write_from(fish/vendor_completions.d/ampbench.fish completion fish)
  return()
endif()

install(TARGETS ampbench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET ampbench_cuda) # where the program looks for it (kernels/core/plugin.c)
  install(TARGETS ampbench_cuda LIBRARY DESTINATION lib/ampbench)
endif()
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/ampprobe)
install(TARGETS ampprobe_shared ampprobe_static EXPORT ampprobe-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT ampprobe-targets NAMESPACE ampprobe:: DESTINATION ${package} COMPONENT development)
install(FILES include/ampprobe.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
include(CMakePackageConfigHelpers)
configure_package_config_file(cmake/ampprobe-config.cmake.in
  ${PROJECT_BINARY_DIR}/package/ampprobe-config.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/ampprobe-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/ampprobe-config.cmake
  ${PROJECT_BINARY_DIR}/package/ampprobe-config-version.cmake DESTINATION ${package} COMPONENT development)
# The prefix is known when the files are installed.
install(CODE "set(PROJECT_VERSION ${PROJECT_VERSION})
  set(CMAKE_INSTALL_LIBDIR ${CMAKE_INSTALL_LIBDIR})
  set(CMAKE_INSTALL_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
  configure_file(\"${PROJECT_SOURCE_DIR}/cmake/ampprobe.pc.in\" \"${PROJECT_BINARY_DIR}/package/ampprobe.pc\"
    @ONLY)" COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/package/ampprobe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)
install(FILES examples/mlp_probe.c DESTINATION share/doc/libampprobe-dev/examples COMPONENT development)
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN measured EXCLUDE)
install(FILES CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
find_program(GZIP_PROGRAM gzip)
configure_file(cmake/debian/changelog.in ${PROJECT_BINARY_DIR}/debian/changelog @ONLY)
set(texts ${PROJECT_SOURCE_DIR}/cmake/debian/copyright)
if(GZIP_PROGRAM)
  execute_process(COMMAND ${GZIP_PROGRAM} -9nf ${PROJECT_BINARY_DIR}/debian/changelog)
  list(APPEND texts ${PROJECT_BINARY_DIR}/debian/changelog.gz)
endif()
# Every Debian package has both.
install(FILES ${texts} DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${texts} DESTINATION share/doc/libampprobe1 COMPONENT library)
install(FILES ${texts} DESTINATION share/doc/libampprobe-dev COMPONENT development)
install(FILES ${texts} DESTINATION share/doc/python3-ampprobe COMPONENT python EXCLUDE_FROM_ALL)

# A program for another machine, or one that is slow and instrumented, does not write its pages here.
if(NOT CMAKE_CROSSCOMPILING AND NOT AMPBENCH_SANITIZE)
  set(pages ${PROJECT_BINARY_DIR}/share)
  add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/share.stamp DEPENDS ampbench ${CMAKE_CURRENT_LIST_FILE}
    VERBATIM
    COMMAND ${CMAKE_COMMAND} -D AMPBENCH=$<TARGET_FILE:ampbench> -D OUT=${pages} -D "GZIP=${GZIP_PROGRAM}" -P
      ${CMAKE_CURRENT_LIST_FILE}
    COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/share.stamp)
  add_custom_target(pages ALL DEPENDS ${PROJECT_BINARY_DIR}/share.stamp)
  install(DIRECTORY ${pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(DIRECTORY ${pages}/bash-completion ${pages}/zsh ${pages}/fish
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR})
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL Unspecified library development python) # Unspecified: without a component
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_NAME ampbench)
set(CPACK_PACKAGE_CONTACT "ampbench maintainers <maintainers@users.noreply.a-seed-a4b5514b.example>")
set(CPACK_COMPONENT_UNSPECIFIED_DESCRIPTION "benchmark and numerical diagnosis of mixed-precision training
Trains the same network from the same bits on the same batches under
apex's levels O0 to O3 (and those of other frameworks) and several loss
scales, and says what each costs and what it breaks: speed, memory, loss
against fp32 beside a measured noise floor, skipped steps, flushed and
overflowed gradients by layer. Compares builds in CI.")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
  WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libampprobe1)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "numerical record of a training loop: library
What a training loop links to write what its gradients, layers and loss
scale did, for ampbench diagnose, advise and report.")
file(WRITE ${PROJECT_BINARY_DIR}/debian/shlibs "libampprobe 1 libampprobe1 (>= ${PROJECT_VERSION})\n")
file(WRITE ${PROJECT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/debian/shlibs"
  "${PROJECT_BINARY_DIR}/debian/triggers")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libampprobe-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libampprobe1 (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "numerical record of a training loop: development files
Header, static library, pkg-config file and CMake package of libampprobe,
and an example.")
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_RECOMMENDS "gnuplot-nox | gnuplot")
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_SUGGESTS "dataset-fashion-mnist")
ab_debian_python()
set(CPACK_POST_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/debian/finish.cmake")
include(CPack)
