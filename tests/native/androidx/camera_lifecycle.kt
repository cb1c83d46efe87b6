// camera/camera-lifecycle/api/current.txt of androidx/androidx, the part that is in 1.4 too.
package androidx.camera.lifecycle

import androidx.camera.core.Camera
import androidx.camera.core.CameraSelector
import androidx.camera.core.UseCase

class ProcessCameraProvider private constructor() {
    fun bindToLifecycle(
        lifecycleOwner: androidx.lifecycle.LifecycleOwner, cameraSelector: CameraSelector, vararg useCases: UseCase?,
    ): Camera = TODO()

    companion object {
        @JvmStatic
        fun getInstance(
            context: android.content.Context,
        ): com.google.common.util.concurrent.ListenableFuture<ProcessCameraProvider> = TODO()
    }
}
