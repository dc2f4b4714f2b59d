# server/native/openapi.json becomes a C file: the objects of the target server_openapi belong into whatever serves it, beside
# server/native/openapi.c. The same file, run by cmake -P with IN and OUT, writes it.
if(DEFINED IN)
  file(READ ${IN} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  file(WRITE ${OUT} "/* made by cmake/openapi.cmake from server/native/openapi.json */\n#include \"native/openapi.h\"\n
const unsigned char srv_openapi[] = {\n${hex}\n};\nconst size_t srv_n_openapi = sizeof srv_openapi;\n")
  return()
endif()
set(openapi_c ${CMAKE_BINARY_DIR}/generated/openapi_json.c)
add_custom_command(OUTPUT ${openapi_c} DEPENDS ${CMAKE_SOURCE_DIR}/server/native/openapi.json ${CMAKE_SOURCE_DIR}/cmake/openapi.cmake
                   COMMAND ${CMAKE_COMMAND} -DIN=${CMAKE_SOURCE_DIR}/server/native/openapi.json -DOUT=${openapi_c}
                           -P ${CMAKE_SOURCE_DIR}/cmake/openapi.cmake
                   COMMENT "Embedding the description of the API" VERBATIM)
add_library(server_openapi OBJECT ${openapi_c})
target_include_directories(server_openapi PRIVATE ${CMAKE_SOURCE_DIR}/server)
