# CUDA kernels: each src/backend/cuda/kernels/*.cu becomes one image (machine code for 7.5, 8.0, 9.0a and PTX for later
# chips, or what CUDA_ARCH says) that image.c carries inside the library. Without nvcc the backend is not compiled in. Nothing of the toolkit is
# linked: the driver's library is found at run time.
set(BITNET_CUDA AUTO CACHE STRING "the CUDA backend: AUTO (where nvcc is found), ON, OFF")
set(BITNET_CUDA_STORE ${CMAKE_CURRENT_LIST_DIR}/../build/cuda CACHE PATH "kernel images, shared by all builds")
set(CUDA_FOUND OFF)
if(NOT BITNET_CUDA STREQUAL "OFF")
  find_program(BITNET_NVCC nvcc PATHS /usr/local/cuda/bin /opt/cuda/bin)
  if(BITNET_NVCC)
    set(CUDA_FOUND ON)
  elseif(BITNET_CUDA STREQUAL "ON")
    message(FATAL_ERROR "BITNET_CUDA=ON: nvcc is not found; install the CUDA toolkit or set BITNET_NVCC")
  endif()
endif()
if(NOT CUDA_FOUND)
  message(STATUS "CUDA backend: not compiled (BITNET_CUDA=${BITNET_CUDA})")
  return()
endif()

execute_process(COMMAND ${BITNET_NVCC} --version OUTPUT_VARIABLE nvcc_version)
string(REGEX MATCH "release ([0-9]+)(\\.[0-9]+)?" nvcc_version "${nvcc_version}")
set(cuda_toolkit ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
target_compile_definitions(bnet_flags INTERFACE BITNET_CUDA_MAJOR=${CMAKE_MATCH_1}) # the least driver, too
# CUDA_ARCH: only for these chips, sm_80 or sm_75,sm_90a; compute_80 is PTX for later ones. Empty: all we have kernels for
set(CUDA_ARCH "$ENV{CUDA_ARCH}" CACHE STRING "chips the CUDA kernels are compiled for; empty: sm_75 sm_80 sm_90a compute_80")
string(REGEX REPLACE "[, ;]+" ";" cuda_archs "${CUDA_ARCH}")
if(NOT cuda_archs)
  set(cuda_archs sm_75 sm_80 sm_90a compute_80)
endif()
execute_process(COMMAND ${BITNET_NVCC} --list-gpu-code OUTPUT_VARIABLE cuda_known)
string(REGEX REPLACE "\n" " " cuda_known "${cuda_known}")
set(cuda_arch "")
set(cuda_hopper "")
list(TRANSFORM cuda_archs REPLACE "^([0-9]+a?)$" "sm_\\1")
list(TRANSFORM cuda_archs REPLACE "^sm_90$" "sm_90a") # its own instructions are what we have it for
foreach(arch ${cuda_archs})
  string(REGEX REPLACE "^(sm|compute)_([0-9]+)a?$" "sm_\\2" plain ${arch})
  if(NOT arch MATCHES "^(sm|compute)_[0-9]+a?$" OR NOT " ${cuda_known}" MATCHES " ${plain} ")
    message(FATAL_ERROR "CUDA_ARCH=${CUDA_ARCH}: ${arch} is none of what ${BITNET_NVCC} compiles for: ${cuda_known}(with compute_ "
                        "instead of sm_: PTX); name some of them, separated by commas, or leave it empty")
  endif()
  string(REGEX REPLACE "^(sm|compute)_" "compute_" virtual ${arch})
  if(arch STREQUAL "sm_90a")
    set(cuda_hopper --generate-code=arch=${virtual},code=${arch})
  else()
    list(APPEND cuda_arch --generate-code=arch=${virtual},code=${arch})
  endif()
endforeach()
# For each capability that a row of kernels.inc names: the first of them whose code such a kernel is part of. Hopper's own
# kernels are in its own code alone.
set(cuda_for "")
foreach(level 50 60 61 70 75 80 90)
  set(first none)
  set(least 1000)
  foreach(arch ${cuda_archs})
    string(REGEX MATCH "[0-9]+" number ${arch})
    if(number LESS least AND NOT number LESS level AND (level LESS 90 OR arch STREQUAL "sm_90a"))
      set(first ${arch})
      set(least ${number})
    endif()
  endforeach()
  string(APPEND cuda_for "#define BNET_CUDA_FOR_${level} \"${first}\"\n")
endforeach()
string(REPLACE ";" " " cuda_archs "${cuda_archs}")
message(STATUS "CUDA kernels for ${cuda_archs}")
file(GLOB cuda_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/kernels/*.cu)
file(GLOB cuda_headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/kernels/*.cuh
     ${CMAKE_CURRENT_LIST_DIR}/../src/backend/gpu/ref/*.h ${CMAKE_CURRENT_LIST_DIR}/../src/backend/gpu/layouts.h
     ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/kernels.h
     ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/batch.h ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/decode.h
     ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/matmul_i2s.h ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/tiles.h
     ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/attn_batch.h ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/head_copy.h
     ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/w2_few_tokens.h)
set(cuda_images "")
set(cuda_list "/* generated: IMAGE(name, file) of every kernel image */\n")
foreach(f ${cuda_files})
  get_filename_component(name ${f} NAME_WE)
  set(image ${CMAKE_BINARY_DIR}/cuda/${name}.fatbin)
  set(flags -O3 -std=c++17 -Xptxas -warn-spills)
  if(name STREQUAL "ref")
    list(APPEND flags -fmad=false) # the CPU's bits
  endif()
  set(arch ${cuda_arch} ${cuda_hopper})
  if(name MATCHES "wgmma$|_sm90$") # Hopper's own instructions
    if(NOT cuda_hopper)
      continue()
    endif()
    set(arch ${cuda_hopper})
  endif()
  string(REPLACE ";" "|" flags "${flags};${arch}")
  string(REPLACE ";" "|" headers "${cuda_headers}")
  add_custom_command(OUTPUT ${image} DEPENDS ${f} ${cuda_headers} VERBATIM
                     COMMAND ${CMAKE_COMMAND} -DNVCC=${BITNET_NVCC} -DFLAGS=${flags} -DSOURCE=${f} -DHEADERS=${headers}
                             -DINCLUDE=${CMAKE_CURRENT_LIST_DIR}/../src -DOUT=${image} -DSTORE=${BITNET_CUDA_STORE}
                             -P ${CMAKE_CURRENT_LIST_DIR}/cuda_image.cmake
                     COMMENT "CUDA ${name}")
  list(APPEND cuda_images ${image})
  string(APPEND cuda_list "IMAGE(${name}, \"${image}\")\n")
endforeach()
# sources for compilation at run time (rtc/compiler.c), as text under the names by which they are included
set(cuda_sources "/* generated: SOURCE(id, name, file) of every source that is carried */\n")
file(GLOB cuda_rtc CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/rtc/*.cuh)
list(APPEND cuda_rtc ${CMAKE_CURRENT_LIST_DIR}/../src/backend/cuda/kernels/w2_gemv.cu ${cuda_headers})
list(FILTER cuda_rtc EXCLUDE REGEX "/(wgmma|w2_tiles|attn16|best|head_copy|ref_dialect)\\.cuh$|/(tiles|decode|attn_batch|head_copy|ref_[a-z]+)\\.h$") # what the GEMV does not include
foreach(f ${cuda_rtc})
  get_filename_component(f ${f} ABSOLUTE)
  get_filename_component(name ${f} NAME)
  string(MAKE_C_IDENTIFIER ${name} id)
  if(f MATCHES "(backend/(cuda|gpu)/[a-z0-9_]+\\.h|backend/cuda/kernels/(w2_gemv\\.cu|w2_few_tokens\\.cuh))$")
    set(name ${CMAKE_MATCH_1})
  endif()
  string(APPEND cuda_sources "SOURCE(${id}, \"${name}\", \"${f}\")\n")
endforeach()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/cuda/sources.inc CONTENT "${cuda_sources}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/backend/cuda/rtc/sources.c PROPERTIES OBJECT_DEPENDS "${cuda_rtc}")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/cuda/images.inc CONTENT "${cuda_list}")
string(STRIP "${cuda_known}" cuda_known)
string(CONCAT cuda_made "/* generated: what the images are for, what compiled them, and all that it compiles for */\n"
       "#define BNET_CUDA_ARCHS \"${cuda_archs}\"\n" "#define BNET_CUDA_TOOLKIT \"${cuda_toolkit}\"\n"
       "#define BNET_CUDA_KNOWN \"${cuda_known}\"\n" "${cuda_for}")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/cuda/archs.inc CONTENT "${cuda_made}")
target_compile_definitions(bnet_flags INTERFACE BITNET_HAVE_CUDA=1)
target_include_directories(bnet_flags INTERFACE ${CMAKE_BINARY_DIR}/cuda)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/backend/cuda/image.c PROPERTIES OBJECT_DEPENDS "${cuda_images}")
