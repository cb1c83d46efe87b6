// swift-tools-version: 5.9
import PackageDescription

let package = Package(
    name: "EdgeKit",
    platforms: [.iOS(.v16), .macOS(.v13)],
    products: [.library(name: "EdgeKit", targets: ["EdgeKit"])],
    targets: [
        .target(
            name: "CEdgeKit",
            sources: ["library.cpp"],  // it includes the files of source/
            publicHeadersPath: "include",
            cxxSettings: [.headerSearchPath("source")],
            linkerSettings: [.linkedLibrary("c++")]
        ),
        .target(name: "EdgeKit", dependencies: ["CEdgeKit"]),
    ],
    cxxLanguageStandard: .cxx17
)
