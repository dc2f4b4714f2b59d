# What `make install` puts where: the command, both libraries, the headers, the story model, pkg-config and CMake files.
include(CMakePackageConfigHelpers)
install(TARGETS bitnet_shared bitnet_static EXPORT bitnetTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET bitnet_cli)
  install(TARGETS bitnet_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES include/bitnet.h include/bitnet_dev.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES models/story.gguf models/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/bitnet/models OPTIONAL)
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
install(FILES ${CMAKE_BINARY_DIR}/bitnet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
