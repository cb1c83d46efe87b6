package org.edgekit.app

import android.app.Activity
import android.content.Intent
import android.graphics.Bitmap
import android.graphics.BitmapFactory
import android.net.Uri
import android.os.Bundle
import android.widget.Button
import android.widget.ImageView
import android.widget.LinearLayout
import android.widget.ScrollView
import android.widget.TextView
import java.io.IOException
import java.util.concurrent.Executors
import org.edgekit.EdgeKitException
import org.edgekit.Session
import org.edgekit.predict

/** Chooses a photo and shows what the model finds in it. */
class MainActivity : Activity() {
    private val worker = Executors.newSingleThreadExecutor()
    private lateinit var picture: ImageView
    private lateinit var text: TextView
    private var session: Session? = null // used by the worker only

    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        picture = ImageView(this).apply { setAdjustViewBounds(true) }
        text = TextView(this).apply { textSize = 16f }
        val button = Button(this).apply {
            text = "Choose a photo"
            setOnClickListener { startActivityForResult(Intent(Intent.ACTION_GET_CONTENT).setType("image/*"), PHOTO) }
        }
        val camera = Button(this).apply {
            text = "Camera"
            setOnClickListener { startActivity(Intent(this@MainActivity, CameraActivity::class.java)) }
        }
        val column = LinearLayout(this).apply { orientation = LinearLayout.VERTICAL }
        listOf(button, camera, picture, text).forEach(column::addView)
        setContentView(ScrollView(this).apply { addView(column) })
        inBackground { show(null, describe(opened())) }
    }

    override fun onActivityResult(request: Int, result: Int, data: Intent?) {
        val photo = data?.data ?: return
        inBackground {
            val bitmap = read(photo)
            val session = opened()
            val prediction = session.predict(bitmap)
            show(withBoxes(bitmap, prediction), describe(session) + "\n\n" + lines(prediction))
        }
    }

    override fun onDestroy() {
        worker.execute { session?.close() }
        worker.shutdown()
        super.onDestroy()
    }

    private fun opened(): Session = session ?: Session.open(asset(this, "model.edgekit").path).also { session = it }

    private fun inBackground(action: () -> Unit) = worker.execute {
        try {
            action()
        } catch (problem: EdgeKitException) {
            show(null, problem.message!!)
        } catch (problem: IOException) {
            show(null, problem.toString())
        }
    }

    private fun show(bitmap: Bitmap?, lines: String) = runOnUiThread {
        picture.setImageBitmap(bitmap)
        text.text = lines
    }

    /** Decode a photo, at half, a quarter ... of its size if a side is longer than [LONGEST]. */
    private fun read(photo: Uri): Bitmap {
        val options = BitmapFactory.Options().apply { inJustDecodeBounds = true }
        decode(photo, options)
        options.inSampleSize = generateSequence(1) { 2 * it }
            .first { maxOf(options.outWidth, options.outHeight) / it <= LONGEST }
        options.inJustDecodeBounds = false
        return decode(photo, options) ?: throw IOException("$photo is not a photo")
    }

    private fun decode(photo: Uri, options: BitmapFactory.Options): Bitmap? {
        val stream = contentResolver.openInputStream(photo) ?: throw IOException("$photo cannot be read")
        return stream.use { BitmapFactory.decodeStream(it, null, options) }
    }

    private companion object {
        const val PHOTO = 1
        const val LONGEST = 2048
    }
}
