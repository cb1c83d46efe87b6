import org.jetbrains.kotlin.gradle.dsl.JvmTarget

plugins {
    id("com.android.library")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "org.edgekit"
    compileSdk = 35
    defaultConfig {
        minSdk = 26
        consumerProguardFiles("consumer-rules.pro")
        ndk { abiFilters += listOf("arm64-v8a", "armeabi-v7a", "x86_64") }
        externalNativeBuild { cmake { arguments += listOf("-DANDROID_STL=c++_static", "-DBUILD_SHARED_LIBS=ON") } }
    }
    externalNativeBuild { cmake { path = file("src/main/cpp/CMakeLists.txt") } }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_17
        targetCompatibility = JavaVersion.VERSION_17
    }
}

kotlin { compilerOptions { jvmTarget = JvmTarget.JVM_17 } }

// Their packages hold libonnxruntime.so and libLiteRt.so, which libedgekit opens by these names.
dependencies {
    implementation("com.microsoft.onnxruntime:onnxruntime-android:1.22.0")  // runs variants for ort
    implementation("com.google.ai.edge.litert:litert:2.3.0")  // runs variants for tflite
}
