/** Answer commands of tests/native/test_kotlin.py: one a line, its words apart by tabs. */
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import org.edgekit.ChannelOrder
import org.edgekit.EdgeKitException
import org.edgekit.Engine
import org.edgekit.Item
import org.edgekit.Session
import org.edgekit.Tensor

fun hexadecimal(value: Float): String = "%08x".format(value.toRawBits())

fun line(item: Item): String {
    val box = item.box?.run { listOf(left, top, right, bottom) }.orEmpty()
    return (listOf("item", "${item.index}", item.label) + (listOf(item.score) + box).map(::hexadecimal)).joinToString("\t")
}

/** Pixels as BufferedImage.getRGB returns them, with a half transparent alpha. */
fun colours(pixels: ByteArray): IntArray = IntArray(pixels.size / 3) { i ->
    val (red, green, blue) = List(3) { pixels[3 * i + it].toInt() and 0xff }
    (0x80 shl 24) or (red shl 16) or (green shl 8) or blue
}

fun predict(session: Session, form: String, file: String, width: Int, height: Int) {
    val pixels = File(file).readBytes()
    val prediction = when (form) {
        "colours" -> session.predict(colours(pixels), width, height)
        else -> session.predict(pixels, width, height, ChannelOrder.valueOf(form))
    }
    println("kind\t${prediction.kind}")
    prediction.items.forEach { println(line(it)) }
}

/** Listen to float32 samples in pieces, as one sound that ends, and show the windows. */
fun listen(session: Session, file: String, rate: Int, piece: Int) {
    val numbers = ByteBuffer.wrap(File(file).readBytes()).order(ByteOrder.nativeOrder()).asFloatBuffer()
    val samples = FloatArray(numbers.remaining()).also { numbers.get(it) }
    for (start in samples.indices step piece) {
        val end = minOf(start + piece, samples.size)
        for (window in session.listen(samples.copyOfRange(start, end), rate, start == 0, end == samples.size)) {
            println("window\t${window.startSeconds}\t${window.endSeconds}\t${window.prediction.kind}")
            window.prediction.items.forEach { println(line(it)) }
        }
    }
}

fun run(session: Session, values: List<Float>, shape: List<Long>) {
    val bytes = ByteBuffer.allocate(4 * values.size).order(ByteOrder.nativeOrder())
    values.forEach { bytes.putFloat(it) }
    bytes.flip()
    val outputs = session.run(mapOf(session.inputs.single().name to Tensor("float32", shape, bytes)))
    for ((name, tensor) in outputs) {
        val numbers = List(tensor.bytes.remaining() / 4) { hexadecimal(tensor.bytes.getFloat(4 * it)) }
        println("output\t$name\t${tensor.dtype}\t${tensor.shape}\t${numbers.joinToString(" ")}")
    }
}

fun describe(session: Session) {
    println("active\t${session.active}")
    session.fallbacks.forEach { println("fallback\t${it.from}\t${it.to}\t${it.reason}") }
    println("inputs\t${session.inputs}")
    println("outputs\t${session.outputs}")
}

fun answer(words: List<String>, engines: Map<Engine, String?>?) {
    val (verb, path, variant) = words
    val strict = verb == "strict"
    Session.open(path, engines, variant.ifEmpty { null }, strict, threads = 1).use { session ->
        val rest = words.drop(3)
        when (verb) {
            "describe", "strict" -> describe(session)
            "predict" -> predict(session, rest[0], rest[1], rest[2].toInt(), rest[3].toInt())
            "run" -> run(session, List(rest[0].toInt()) { rest[1].toFloat() }, rest[2].split("x").map { it.toLong() })
            "listen" -> listen(session, rest[0], rest[1].toInt(), rest[2].toInt())
            "missing" -> session.run(emptyMap())
            "closed" -> {
                session.close()
                session.predict(ByteArray(3), 1, 1)
            }
            else -> error("unknown verb $verb")
        }
    }
}

fun main(arguments: Array<String>) {
    val engines = arguments.map { it.split("=") }.associate { (engine, library) -> Engine.valueOf(engine) to library }
    for (command in generateSequence(::readLine)) {
        try {
            answer(command.split("\t"), engines.ifEmpty { null })
        } catch (problem: EdgeKitException) {
            println("refused\t${problem.message!!.replace("\n", " | ")}")
        } catch (problem: RuntimeException) {
            println("${problem::class.simpleName}\t${problem.message}")
        }
        println("end")
    }
}
