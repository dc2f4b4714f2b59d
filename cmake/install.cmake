# What `make install` puts where: the command, both libraries, the headers, the story model, pkg-config and CMake files.
include(CMakePackageConfigHelpers)
install(TARGETS bitnet_shared bitnet_static bitnet_extras_shared bitnet_extras_static EXPORT bitnetTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET bitnet_cli)
  install(TARGETS bitnet_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # The command writes its manual and its completions from the table that it parses options with.
  function(install_printed file folder)
    string(REPLACE ";" " " what "${ARGN}")
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/printed/${file}
                       COMMAND bitnet_cli ${ARGN} > ${CMAKE_BINARY_DIR}/printed/${file}
                       DEPENDS bitnet_cli COMMENT "bitnet ${what}" VERBATIM)
    set_property(GLOBAL APPEND PROPERTY PRINTED ${CMAKE_BINARY_DIR}/printed/${file})
    install(FILES ${CMAKE_BINARY_DIR}/printed/${file} DESTINATION ${folder})
  endfunction()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/printed)
  install_printed(bitnet.1 ${CMAKE_INSTALL_MANDIR}/man1 man)
  install_printed(bitnet ${CMAKE_INSTALL_DATADIR}/bash-completion/completions completions bash)
  install_printed(_bitnet ${CMAKE_INSTALL_DATADIR}/zsh/site-functions completions zsh)
  install_printed(bitnet.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d completions fish)
  get_property(printed GLOBAL PROPERTY PRINTED)
  add_custom_target(printed ALL DEPENDS ${printed})
endif()
install(FILES include/bitnet.h include/bitnet_tools.h include/bitnet_kernel.h include/bitnet_check.h
              extras/bitnet_extras.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES models/story.gguf DESTINATION ${CMAKE_INSTALL_DATADIR}/bitnet OPTIONAL)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT bitnetTargets NAMESPACE bitnet:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/bitnet)
configure_package_config_file(cmake/bitnetConfig.cmake.in ${CMAKE_BINARY_DIR}/bitnetConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/bitnet)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/bitnetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/bitnetConfig.cmake ${CMAKE_BINARY_DIR}/bitnetConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/bitnet)

# The .pc file finds its prefix from where it lies, so that a moved tree still works.
file(RELATIVE_PATH PC_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(cmake/bitnet.pc.in ${CMAKE_BINARY_DIR}/bitnet.pc @ONLY)
configure_file(cmake/bitnet-extras.pc.in ${CMAKE_BINARY_DIR}/bitnet-extras.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/bitnet.pc ${CMAKE_BINARY_DIR}/bitnet-extras.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
