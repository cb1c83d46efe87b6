package org.edgekit

import java.nio.ByteBuffer

/** A call of libedgekit failed. The message says what, where, why and what to do. */
class EdgeKitException(message: String) : RuntimeException(message)

/** Order of a picture's channels. */
enum class ChannelOrder { RGB, BGR }

/** Corners of a box, in pixels of the picture. */
data class Box(val left: Float, val top: Float, val right: Float, val bottom: Float)

/** One class, one object with its [box], or speech (index 1) or none (0). The score is from 0 to 1. */
data class Item(val index: Long, val label: String, val score: Float, val box: Box?)

/** Result of a task, best first. [kind] is the card's: "classify", "detect" or "voice-activity". */
data class Prediction(val kind: String, val items: List<Item>)

/** Result of a window of a sound, and its start and end in seconds. */
data class Window(val startSeconds: Double, val endSeconds: Double, val prediction: Prediction)

/** One variant of a bundle, with its status as the build wrote it. */
data class Variant(
    val name: String,
    val target: String,
    val profile: String,
    val precision: String,
    val status: String,
)

/** One fallback: from a better variant to the next one that was tried, and why. */
data class Fallback(val from: String, val to: String, val reason: String)

/** Name, dtype (by numpy's name) and shape of an input or output; -1 is a dimension that depends on the data. */
data class TensorSpec(val name: String, val dtype: String, val shape: List<Long>)

/** An array: its dtype by numpy's name, its shape, and its values in the byte order of the processor. */
class Tensor(val dtype: String, val shape: List<Long>, val bytes: ByteBuffer)
