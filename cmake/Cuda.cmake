# The CUDA plugin: all .cu files and the calls of cuBLASLt and cuDNN, in one module that the program opens at
# run time. AMPBENCH_CUDA=AUTO builds it where nvcc, cuBLASLt and cuDNN 9 are; ON insists; OFF does not look.
# Sets AMPBENCH_CUDA_FOUND.
#   AMPBENCH_CUDA_ARCHS   architectures; empty: by the toolkit's version (CUDA 13 has no Volta)
set(AMPBENCH_CUDA_ARCHS "" CACHE STRING
  "CUDA architectures, e.g. 90-real (empty: all that the toolkit has and we know)")
set(AMPBENCH_CUDA_FOUND FALSE)

function(ab_cuda_missing what)
  if(AMPBENCH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "AMPBENCH_CUDA=ON but ${what}")
  endif()
  message(STATUS "no CUDA plugin: ${what}")
endfunction()

macro(ab_find_cuda)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 75) # replaced below; CMake wants one to try the compiler with
  endif()
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    ab_cuda_missing("nvcc was not found")
  else()
    enable_language(CUDA)
    find_package(CUDAToolkit QUIET)
    find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
      ab_cuda_missing("nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old (12 or later)")
    elseif(NOT TARGET CUDA::cublasLt)
      ab_cuda_missing("cuBLASLt was not found")
    elseif(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
      ab_cuda_missing("cuDNN was not found")
    elseif(NOT EXISTS ${CUDNN_INCLUDE_DIR}/cudnn_graph.h)
      ab_cuda_missing("cuDNN 9 is needed, ${CUDNN_INCLUDE_DIR} has an older one")
    else()
      set(AMPBENCH_CUDA_FOUND TRUE)
    endif()
  endif()
endmacro()

if(NOT AMPBENCH_CUDA STREQUAL "OFF")
  ab_find_cuda()
endif()

# ampbench_cuda_plugin(<source> ...): the module, beside the program.
function(ampbench_cuda_plugin)
  set(archs ${AMPBENCH_CUDA_ARCHS})
  if(NOT archs AND CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13)
    set(archs 70 75-real 80-real 86-real 89-real 90)
  elseif(NOT archs)
    set(archs 75-real 80-real 86-real 89-real 90-real 100-real 120)
  endif()
  add_library(ampbench_cuda MODULE ${ARGN})
  set_target_properties(ampbench_cuda PROPERTIES CUDA_ARCHITECTURES "${archs}" CUDA_STANDARD 17
    CUDA_EXTENSIONS OFF
    CUDA_RUNTIME_LIBRARY Shared CUDA_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  target_include_directories(ampbench_cuda PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
  target_include_directories(ampbench_cuda SYSTEM PRIVATE ${CUDNN_INCLUDE_DIR})
  # NCCL is opened at run time; its header, where it is, is only compared with our declarations.
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NCCL_INCLUDE_DIR)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/cuda/nccl_check_cuda.cu PROPERTIES
      TARGET_DIRECTORY ampbench_cuda
      COMPILE_DEFINITIONS AB_HAVE_NCCL_H INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
  endif()
  # No fused multiply-add, no flush of subnormals, exact division and root: the same formula, the same bits.
  target_compile_options(ampbench_cuda PRIVATE --fmad=false --ftz=false --prec-div=true --prec-sqrt=true
    -Xcompiler=-Wall,-Wextra,-ffp-contract=off $<$<BOOL:${AMPBENCH_WERROR}>:-Werror=all-warnings>)
  target_link_libraries(ampbench_cuda PRIVATE CUDA::cublasLt ${CUDNN_LIBRARY} ${CMAKE_DL_LIBS})
  target_link_options(ampbench_cuda PRIVATE -Wl,--no-undefined)
endfunction()
