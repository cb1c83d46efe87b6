// Signatures of CameraX that the exported app calls: camera/camera-core/api/1.4.0-beta02.txt of androidx/androidx.
package androidx.camera.core

abstract class UseCase

interface Camera

class CameraSelector private constructor() {
    companion object {
        @JvmField val DEFAULT_BACK_CAMERA: CameraSelector = TODO()
    }
}

interface ImageProxy : AutoCloseable {
    fun toBitmap(): android.graphics.Bitmap
}

class ImageAnalysis private constructor() : UseCase() {
    fun setAnalyzer(executor: java.util.concurrent.Executor, analyzer: Analyzer): Unit = TODO()
    fun clearAnalyzer(): Unit = TODO()

    fun interface Analyzer {
        fun analyze(image: ImageProxy)
    }

    class Builder {
        fun setBackpressureStrategy(strategy: Int): Builder = TODO()
        fun setOutputImageFormat(format: Int): Builder = TODO()
        fun setOutputImageRotationEnabled(enabled: Boolean): Builder = TODO()
        fun build(): ImageAnalysis = TODO()
    }

    companion object {
        const val STRATEGY_KEEP_ONLY_LATEST = 0
        const val OUTPUT_IMAGE_FORMAT_RGBA_8888 = 2
    }
}
