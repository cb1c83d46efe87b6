package org.edgekit.app

import android.app.Activity
import android.content.Context
import android.content.Intent
import android.graphics.Bitmap
import android.graphics.BitmapFactory
import android.graphics.Canvas
import android.graphics.Color
import android.graphics.Paint
import android.net.Uri
import android.os.Bundle
import android.widget.Button
import android.widget.ImageView
import android.widget.LinearLayout
import android.widget.ScrollView
import android.widget.TextView
import java.io.File
import java.io.IOException
import java.util.concurrent.Executors
import org.edgekit.EdgeKitException
import org.edgekit.Prediction
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
        val column = LinearLayout(this).apply { orientation = LinearLayout.VERTICAL }
        listOf(button, picture, text).forEach(column::addView)
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

        /** Copy a file of the assets to the disk, where libedgekit can open it. */
        fun asset(context: Context, name: String): File {
            val file = File(context.filesDir, name)
            context.assets.open(name).use { from -> file.outputStream().use(from::copyTo) }
            return file
        }

        fun describe(session: Session): String {
            val fallbacks = session.fallbacks.map { "${it.from} -> ${it.to}: ${it.reason}" }
            return (listOf("runs ${session.active.name}, ${session.active.status}") + fallbacks).joinToString("\n")
        }

        fun lines(prediction: Prediction): String =
            prediction.items.joinToString("\n") { "%s  %.2f".format(it.label.ifEmpty { "${it.index}" }, it.score) }

        fun withBoxes(bitmap: Bitmap, prediction: Prediction): Bitmap {
            val copy = bitmap.copy(Bitmap.Config.ARGB_8888, true)
            val canvas = Canvas(copy)
            val paint = Paint().apply {
                color = Color.RED
                style = Paint.Style.STROKE
                strokeWidth = copy.width / 200f
            }
            for (box in prediction.items.mapNotNull { it.box }) {
                canvas.drawRect(box.left, box.top, box.right, box.bottom, paint)
            }
            return copy
        }
    }
}
