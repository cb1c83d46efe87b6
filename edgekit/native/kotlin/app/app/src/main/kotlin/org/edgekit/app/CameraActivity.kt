package org.edgekit.app

import android.Manifest
import android.content.pm.PackageManager
import android.graphics.Bitmap
import android.os.Bundle
import android.os.SystemClock
import android.widget.ImageView
import android.widget.LinearLayout
import android.widget.TextView
import androidx.activity.ComponentActivity
import androidx.activity.result.contract.ActivityResultContracts
import androidx.camera.core.CameraSelector
import androidx.camera.core.ImageAnalysis
import androidx.camera.core.ImageProxy
import androidx.camera.lifecycle.ProcessCameraProvider
import java.io.IOException
import java.util.concurrent.ExecutionException
import java.util.concurrent.Executors
import org.edgekit.EdgeKitException
import org.edgekit.Session
import org.edgekit.predict

/** Shows the camera's frames with what the model finds in them. Frames that come while the model runs are dropped. */
class CameraActivity : ComponentActivity() {
    private val worker = Executors.newSingleThreadExecutor()
    private lateinit var picture: ImageView
    private lateinit var text: TextView
    private var session: Session? = null // used by the worker only
    private val frames = ImageAnalysis.Builder()
        .setBackpressureStrategy(ImageAnalysis.STRATEGY_KEEP_ONLY_LATEST)
        .setOutputImageFormat(ImageAnalysis.OUTPUT_IMAGE_FORMAT_RGBA_8888)
        .setOutputImageRotationEnabled(true)
        .build()

    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        picture = ImageView(this).apply { setAdjustViewBounds(true) }
        text = TextView(this).apply { textSize = 16f }
        val column = LinearLayout(this).apply { orientation = LinearLayout.VERTICAL }
        listOf(picture, text).forEach(column::addView)
        setContentView(column)
        val permission = registerForActivityResult(ActivityResultContracts.RequestPermission()) { granted ->
            if (granted) start() else text.text = "The camera is not allowed."
        }
        val given = checkSelfPermission(Manifest.permission.CAMERA)
        if (given == PackageManager.PERMISSION_GRANTED) start() else permission.launch(Manifest.permission.CAMERA)
    }

    override fun onDestroy() {
        frames.clearAnalyzer()
        worker.execute { session?.close() }
        worker.shutdown()
        super.onDestroy()
    }

    private fun start() {
        val provider = ProcessCameraProvider.getInstance(this)
        provider.addListener({
            try {
                provider.get().bindToLifecycle(this, CameraSelector.DEFAULT_BACK_CAMERA, frames)
                frames.setAnalyzer(worker) { it.use(::look) }
            } catch (problem: ExecutionException) {
                text.text = problem.toString()
            } catch (problem: IllegalArgumentException) {
                text.text = problem.toString()
            }
        }, { runOnUiThread(it) })
    }

    private fun look(frame: ImageProxy) = try {
        val session = session ?: Session.open(asset(this, "model.edgekit").path).also { session = it }
        val bitmap = frame.toBitmap()
        val start = SystemClock.elapsedRealtimeNanos()
        val prediction = session.predict(bitmap)
        val took = "%.1f ms".format((SystemClock.elapsedRealtimeNanos() - start) / 1e6)
        show(withBoxes(bitmap, prediction), describe(session) + ", $took\n\n" + lines(prediction))
    } catch (problem: EdgeKitException) {
        show(null, problem.message!!)
    } catch (problem: IOException) {
        show(null, problem.toString())
    }

    private fun show(bitmap: Bitmap?, lines: String) = runOnUiThread {
        picture.setImageBitmap(bitmap)
        text.text = lines
    }
}
