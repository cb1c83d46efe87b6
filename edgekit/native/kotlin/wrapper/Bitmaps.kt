package org.edgekit

import android.graphics.Bitmap

/** Prepare a bitmap by the card, run the model and decode its outputs; boxes are in the bitmap's pixels. */
fun Session.predict(bitmap: Bitmap): Prediction {
    val colours = IntArray(bitmap.width * bitmap.height)
    bitmap.getPixels(colours, 0, bitmap.width, 0, 0, bitmap.width, bitmap.height)
    return predict(colours, bitmap.width, bitmap.height)
}
