package org.edgekit

import java.nio.ByteBuffer
import java.nio.ByteOrder

/** Engines of the wrapper, by the target of the variants that they run. */
enum class Engine(internal val target: String) { ONNX_RUNTIME("ort"), LITERT("tflite") }

/**
 * A bundle whose best variant runs on ONNX Runtime or LiteRT.
 *
 * Calls from several threads run one after the other. A closed session throws [IllegalStateException].
 */
class Session private constructor(private var bundle: Long, private var session: Long) : AutoCloseable {
    /** Inputs of the model, in its order. */
    val inputs: List<TensorSpec> = specs(Native.INPUTS)

    /** Outputs of the model, in its order. */
    val outputs: List<TensorSpec> = specs(Native.OUTPUTS)

    /** Variants of the bundle, in its order. */
    val variants: List<Variant> = List(Native.count(bundle, Native.VARIANTS)) { index ->
        val (name, target, profile, precision, status) = Native.texts(Native.checked(Native.variantAt(bundle, index)))
        Variant(name, target, profile, precision, status)
    }

    /** Variant that runs. */
    val active: Variant
        @Synchronized get() {
            val name = Native.text(Native.checked(Native.active(running())))
            return variants.first { it.name == name }
        }

    /** Fallbacks, oldest first. Empty while the best variant runs. */
    val fallbacks: List<Fallback>
        @Synchronized get() {
            val handle = running()
            return generateSequence(0) { it + 1 }
                .map { Native.fallbackAt(handle, it) }
                .takeWhile { it != null }
                .map { parts -> Native.texts(parts!!).let { (from, to, reason) -> Fallback(from, to, reason) } }
                .toList()
        }

    /**
     * Prepare a picture by the card, run the model and decode its outputs.
     *
     * @param pixels uint8, height x width x 3.
     * @throws EdgeKitException no variant works any more, or the card's input or task is not one of libedgekit.
     */
    @Synchronized
    fun predict(pixels: ByteArray, width: Int, height: Int, order: ChannelOrder = ChannelOrder.RGB): Prediction {
        checkSize(pixels.size, width, height, 3)
        return prediction(Native.predictBytes(running(), pixels, width, height, order.ordinal))
    }

    /**
     * Prepare a picture by the card, run the model and decode its outputs.
     *
     * @param colours height x width, each 0xAARRGGBB without premultiplied alpha, as Bitmap.getPixels and
     *   BufferedImage.getRGB return them. Alpha is ignored.
     * @throws EdgeKitException no variant works any more, or the card's input or task is not one of libedgekit.
     */
    @Synchronized
    fun predict(colours: IntArray, width: Int, height: Int): Prediction {
        checkSize(colours.size, width, height, 1)
        return prediction(Native.predictColours(running(), colours, width, height))
    }

    /**
     * Predict the windows that the next samples of a sound complete. The library resamples to the card's rate, cuts
     * windows, computes features, and keeps the model's states from window to window.
     *
     * @param samples one channel from -1 to 1, of any length, for example of AudioRecord with ENCODING_PCM_FLOAT.
     * @param rate in Hz, the same for the whole sound.
     * @param begins whether another sound begins, from the states before the first run.
     * @param ends whether the sound ends: zeros fill up its last window.
     * @throws EdgeKitException no variant works any more, or the card's input or task is not one of libedgekit.
     */
    @Synchronized
    fun listen(samples: FloatArray, rate: Int, begins: Boolean = false, ends: Boolean = false): List<Window> {
        val handle = running()
        return generateSequence(window(Native.predictSound(handle, samples, rate, begins, ends))) {
            window(Native.predictWaiting(handle))
        }.takeWhile { it.prediction.items.isNotEmpty() }.toList()
    }

    /**
     * Run the model on arrays, for example where the card is of neither a picture nor a sound.
     *
     * @param arrays each input's array by its name.
     * @return each output's array by its name.
     * @throws EdgeKitException an array does not fit, or no variant works any more.
     */
    @Synchronized
    fun run(arrays: Map<String, Tensor>): Map<String, Tensor> {
        val handle = running()
        val unknown = arrays.keys - inputs.map { it.name }.toSet()
        require(unknown.isEmpty()) { "the model has no input $unknown; it has ${inputs.map { it.name }}" }
        val rows = inputs.map { spec -> row(spec.name, requireNotNull(arrays[spec.name]) { "input ${spec.name} is missing" }) }
        val made = Native.checked(Native.run(handle, rows.toTypedArray(), outputs.size))
        return made.associate { parts ->
            val (name, dtype, shape, bytes) = tensorParts(parts)
            name to Tensor(dtype, shape, ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder()))
        }
    }

    /** Stop the session and free its memory. A second call does nothing. */
    @Synchronized
    override fun close() {
        Native.stop(session)
        Native.close(bundle)
        session = 0
        bundle = 0
    }

    private fun running(): Long {
        check(session != 0L) { "the session is closed" }
        return session
    }

    private fun specs(what: Int): List<TensorSpec> = List(Native.count(bundle, what)) { index ->
        val (name, dtype, shape) = tensorParts(Native.checked(Native.tensorAt(bundle, what, index)))
        TensorSpec(name, dtype, shape)
    }

    companion object {
        /** Version of libedgekit. */
        val version: String
            get() = Native.text(Native.version())

        /**
         * Open a bundle and start its best variant that loads and whose golden vectors are right.
         *
         * @param path file on the device's disk. Copy a file of the assets there first.
         * @param engines engines to use, each with the path of its shared library; null finds it in the app, or in
         *   the system. Without them, all that the app has.
         * @param variant name of the variant to try first.
         * @param strict whether to throw instead of falling back.
         * @param threads threads of the engine; 0 is the engine's default.
         * @throws EdgeKitException the bundle is refused, or none of its variants works.
         */
        fun open(
            path: String,
            engines: Map<Engine, String?>? = null,
            variant: String? = null,
            strict: Boolean = false,
            threads: Int = 0,
        ): Session {
            val loaded = engines?.map { (engine, library) -> adapter(engine, library) } ?: inApp()
            val bundle = Native.checked(Native.open(utf8(path)))
            try {
                val session = Native.start(bundle, loaded.toLongArray(), variant?.let(::utf8), strict, threads)
                return Session(bundle, Native.checked(session))
            } catch (problem: EdgeKitException) {
                Native.close(bundle)
                throw problem
            }
        }

        private fun adapter(engine: Engine, library: String?): Long =
            Native.checked(Native.adapter(utf8(engine.target), library?.let(::utf8)))

        /** Return the engines whose libraries the app or the system has. */
        private fun inApp(): List<Long> {
            val tried = Engine.values().map { runCatching { adapter(it, null) } }
            return tried.mapNotNull { it.getOrNull() }.ifEmpty {
                throw EdgeKitException(tried.joinToString("\n") { it.exceptionOrNull()!!.message!! })
            }
        }

        private fun utf8(text: String): ByteArray {
            require('\u0000' !in text) { "a text has a zero character" }
            return text.toByteArray(Charsets.UTF_8)
        }

        private fun checkSize(size: Int, width: Int, height: Int, values: Int) {
            require(width > 0 && height > 0 && size.toLong() == width.toLong() * height * values) {
                "a picture of $width x $height has ${width.toLong() * height * values} values, not $size"
            }
        }

        private fun prediction(parts: Array<Any>?): Prediction {
            val (kind, indices, labels, numbers) = Native.checked(parts)
            numbers as FloatArray
            val boxes = Native.text(kind) == "detect"
            val items = (indices as LongArray).mapIndexed { i, index ->
                val (score, x1, y1, x2, y2) = numbers.slice(5 * i until 5 * i + 5)
                Item(index, Native.text((labels as Array<*>)[i]!!), score, if (boxes) Box(x1, y1, x2, y2) else null)
            }
            return Prediction(Native.text(kind), items)
        }

        private fun window(parts: Array<Any>?): Window {
            val prediction = prediction(parts)
            val (start, end) = Native.checked(parts)[4] as DoubleArray
            return Window(start, end, prediction)
        }

        private data class Parts(val name: String, val dtype: String, val shape: List<Long>, val bytes: ByteArray)

        private fun tensorParts(parts: Any): Parts {
            val (name, dtype, shape, bytes) = parts as Array<*>
            return Parts(Native.text(name!!), Native.text(dtype!!), (shape as LongArray).toList(), bytes as ByteArray)
        }

        private fun row(name: String, tensor: Tensor): Array<Any> {
            require(tensor.shape.size <= Native.RANK_LIMIT) { "input $name has more than ${Native.RANK_LIMIT} dimensions" }
            val bytes = ByteArray(tensor.bytes.remaining()).also { tensor.bytes.duplicate().get(it) }
            return arrayOf(utf8(name), utf8(tensor.dtype), tensor.shape.toLongArray(), bytes)
        }
    }
}
