# ampbench_room(<name> SOURCES ... LINKS ...): one folder of the layout as one static library. LINKS names the rooms
# and libraries it may use; tests/layering.cmake checks the same rule on the #include lines.
function(ampbench_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINKS" ${ARGN})
  add_library(${name} STATIC ${ROOM_SOURCES})
  target_link_libraries(${name} PUBLIC ampbench_flags ${ROOM_LINKS})
endfunction()

# ampbench_def_names(<variable> <file.def> <MACRO>): first arguments of the rows `MACRO(name, ...)` of a .def list.
function(ampbench_def_names variable file macro)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  file(STRINGS ${file} rows REGEX "^${macro}\\(")
  set(names "")
  foreach(row ${rows})
    string(REGEX REPLACE "^${macro}\\(([a-zA-Z0-9_]+).*" "\\1" name "${row}")
    list(APPEND names ${name})
  endforeach()
  set(${variable} ${names} PARENT_SCOPE)
endfunction()

# ampbench_isa_variants(<room> <file.c> ...): compiles each file once per CPU level of kernels/isa.h, with AB_ISA_SUFFIX
# (plain, avx2, avx512) to name its one exported symbol. Only these objects may contain such instructions.
function(ampbench_isa_variants room)
  set(flags_plain "")
  set(flags_avx2 -mavx2 -mf16c -mfma -mbmi2)
  set(flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mf16c -mfma -mbmi2 -mprefer-vector-width=512)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(levels plain)
  else()
    set(levels plain avx2 avx512)
  endif()
  foreach(level ${levels})
    add_library(${room}_${level} OBJECT ${ARGN})
    target_link_libraries(${room}_${level} PRIVATE ampbench_flags)
    target_compile_definitions(${room}_${level} PRIVATE AB_ISA_SUFFIX=${level})
    target_compile_options(${room}_${level} PRIVATE -O3 ${flags_${level}})
    target_sources(${room} PRIVATE $<TARGET_OBJECTS:${room}_${level}>)
  endforeach()
endfunction()
