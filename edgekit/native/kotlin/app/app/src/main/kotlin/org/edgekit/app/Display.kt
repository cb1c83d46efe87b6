package org.edgekit.app

import android.content.Context
import android.graphics.Bitmap
import android.graphics.Canvas
import android.graphics.Color
import android.graphics.Paint
import java.io.File
import java.io.IOException
import org.edgekit.Prediction
import org.edgekit.Session

/** Copy a file of the assets to the disk, where libedgekit can open it. Open sessions keep the earlier copy. */
internal fun asset(context: Context, name: String): File {
    val file = File(context.filesDir, name)
    val draft = File.createTempFile(name, null, context.filesDir)
    context.assets.open(name).use { from -> draft.outputStream().use(from::copyTo) }
    if (!draft.renameTo(file)) throw IOException("$file cannot be written")
    return file
}

internal fun describe(session: Session): String {
    val fallbacks = session.fallbacks.map { "${it.from} -> ${it.to}: ${it.reason}" }
    return (listOf("runs ${session.active.name}, ${session.active.status}") + fallbacks).joinToString("\n")
}

internal fun lines(prediction: Prediction): String =
    prediction.items.joinToString("\n") { "%s  %.2f".format(it.label.ifEmpty { "${it.index}" }, it.score) }

internal fun withBoxes(bitmap: Bitmap, prediction: Prediction): Bitmap {
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
