package org.edgekit

/** Functions of jni.cpp. Texts are UTF-8; 0 or null means that a call failed, and [error] is the reason. */
internal object Native {
    init {
        System.loadLibrary("edgekit")
    }

    external fun version(): ByteArray
    external fun error(): ByteArray
    external fun open(path: ByteArray): Long
    external fun close(bundle: Long)
    external fun count(bundle: Long, what: Int): Int
    external fun tensorAt(bundle: Long, what: Int, index: Int): Array<Any>?
    external fun variantAt(bundle: Long, index: Int): Array<Any>?
    external fun adapter(target: ByteArray, library: ByteArray?): Long
    external fun start(bundle: Long, engines: LongArray, variant: ByteArray?, strict: Boolean, threads: Int): Long
    external fun stop(session: Long)
    external fun active(session: Long): ByteArray?
    external fun fallbackAt(session: Long, index: Int): Array<Any>?
    external fun predictBytes(session: Long, pixels: ByteArray, width: Int, height: Int, order: Int): Array<Any>?
    external fun predictColours(session: Long, colours: IntArray, width: Int, height: Int): Array<Any>?
    external fun predictSound(session: Long, samples: FloatArray, rate: Int, begins: Boolean, ends: Boolean): Array<Any>?
    external fun predictWaiting(session: Long): Array<Any>?
    external fun run(session: Long, inputs: Array<Array<Any>>, outputs: Int): Array<Any>?

    // Parts of a bundle, as edgekit.h numbers them.
    const val INPUTS = 0
    const val OUTPUTS = 1
    const val VARIANTS = 2
    const val RANK_LIMIT = 16

    /** Return a result, or throw the reason of the call that failed on this thread. */
    fun <Result : Any> checked(result: Result?): Result = result ?: throw EdgeKitException(text(error()))

    /** Return a handle, or throw the reason of the call that failed on this thread. */
    fun checked(handle: Long): Long = if (handle != 0L) handle else throw EdgeKitException(text(error()))

    fun text(bytes: Any): String = (bytes as ByteArray).toString(Charsets.UTF_8)

    fun texts(parts: Array<Any>): List<String> = parts.map(::text)
}
