import org.jetbrains.kotlin.gradle.dsl.JvmTarget

plugins {
    id("com.android.application")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "org.edgekit.app"
    compileSdk = 35
    defaultConfig {
        applicationId = "org.edgekit.app"
        minSdk = 26
        targetSdk = 35
        versionCode = 1
        versionName = "1"
    }
    androidResources { noCompress += "edgekit" }  // weights hardly shrink, and are copied at the first start
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_17
        targetCompatibility = JavaVersion.VERSION_17
    }
}

kotlin { compilerOptions { jvmTarget = JvmTarget.JVM_17 } }

dependencies {
    implementation(project(":edgekit"))
    implementation("androidx.activity:activity:1.9.3")
    implementation("androidx.camera:camera-camera2:1.4.2")
    implementation("androidx.camera:camera-lifecycle:1.4.2")
}
