# The chat page: server/web/ becomes a C file. The objects of the target server_web belong into whatever serves the page,
# beside server/native/web.c.
file(GLOB web_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/server/web/*)
set(web_c ${CMAKE_BINARY_DIR}/generated/web_files.c)
add_custom_command(OUTPUT ${web_c} DEPENDS ${web_sources} ${CMAKE_SOURCE_DIR}/cmake/web_files.cmake
                   COMMAND ${CMAKE_COMMAND} -DFOLDER=${CMAKE_SOURCE_DIR}/server/web -DOUT=${web_c}
                           -P ${CMAKE_SOURCE_DIR}/cmake/web_files.cmake
                   COMMENT "Embedding the chat page" VERBATIM)
add_library(server_web OBJECT ${web_c})
target_include_directories(server_web PRIVATE ${CMAKE_SOURCE_DIR}/server)
