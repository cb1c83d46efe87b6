plugins { id("com.android.application") version "8.7.3" }

android {
    namespace = "org.edgekit.sample"
    compileSdk = 35
    defaultConfig {
        applicationId = "org.edgekit.sample"
        minSdk = 26
        targetSdk = 35
        versionCode = 1
        versionName = "1"
    }
    androidResources { noCompress += "tflite" } // it is mapped from the package as it is
}

dependencies { implementation("com.google.ai.edge.litert:litert:1.2.0") }
