import CEdgeKit
import Foundation

/// A bundle whose best variant runs on Core ML, or on ONNX Runtime or LiteRT if the app is linked with them.
///
/// Calls from several threads run one after the other.
public final class Session: @unchecked Sendable {
    /// Inputs of the model, in its order.
    public let inputs: [TensorSpec]
    /// Outputs of the model, in its order.
    public let outputs: [TensorSpec]
    /// Variants of the bundle, in its order.
    public let variants: [Variant]

    private let bundle: OpaquePointer
    private let session: OpaquePointer
    private let lock = NSLock()

    /// Version of libedgekit.
    public static var version: String { String(cString: edgekit_version()) }

    /// Open a bundle and start its best variant that loads and whose golden vectors are right.
    ///
    /// - Parameters:
    ///   - path: file of the bundle.
    ///   - variant: name of the variant to try first.
    ///   - strict: whether to throw instead of falling back.
    ///   - threads: threads of ONNX Runtime; 0 is its default. Core ML decides for itself.
    /// - Throws: `EdgeKitError`: the bundle is refused, or none of its variants works.
    public init(path: String, variant: String? = nil, strict: Bool = false, threads: Int = 0) throws {
        guard let bundle = edgekit_open(path) else { throw EdgeKitError.last() }
        let name = variant.flatMap { strdup($0) }
        defer { free(name) }
        var options = edgekit_options(
            variant: name.map { UnsafePointer($0) }, strict: strict ? 1 : 0, threads: Int32(clamping: threads))
        let engines = Session.engines()
        guard let session = edgekit_start(bundle, engines, Int32(engines.count), &options) else {
            let problem = EdgeKitError.last()
            edgekit_close(bundle)
            throw problem
        }
        self.bundle = bundle
        self.session = session
        inputs = Session.specs(bundle, Int32(EDGEKIT_INPUTS))
        outputs = Session.specs(bundle, Int32(EDGEKIT_OUTPUTS))
        variants = (0..<edgekit_count(bundle, Int32(EDGEKIT_VARIANTS))).map { index in
            var variant = edgekit_variant()
            edgekit_variant_at(bundle, index, &variant)
            return Variant(variant)
        }
    }

    deinit {
        edgekit_stop(session)
        edgekit_close(bundle)
    }

    /// Variant that runs.
    public var active: Variant? {
        locked {
            let name = edgekit_active(session).map { String(cString: $0) }
            return variants.first { $0.name == name }
        }
    }

    /// Fallbacks, oldest first. Empty while the best variant runs.
    public var fallbacks: [Fallback] {
        locked {
            var all: [Fallback] = []
            var fallback = edgekit_fallback()
            while edgekit_fallback_at(session, Int32(all.count), &fallback) == 0 { all.append(Fallback(fallback)) }
            return all
        }
    }

    /// Prepare a picture by the card, run the model and decode its outputs.
    ///
    /// - Parameter pixels: UInt8, height x width x 3.
    /// - Throws: `EdgeKitError`: the size does not match, no variant works any more, or the card's input or task is
    ///   not one of libedgekit.
    public func predict(
        pixels: [UInt8], width: Int, height: Int, order: ChannelOrder = .rgb
    ) throws -> Prediction {
        guard width > 0, height > 0, width <= 1 << 20, height <= 1 << 20, pixels.count == 3 * width * height else {
            throw EdgeKitError(description: "\(pixels.count) values are not a picture of \(width) x \(height) x 3")
        }
        return try locked {
            try pixels.withUnsafeBufferPointer { values in
                var input = edgekit_input()
                input.kind = Int32(EDGEKIT_PICTURE)
                input.values = UnsafeRawPointer(values.baseAddress)
                input.width = Int32(width)
                input.height = Int32(height)
                input.order = order.rawValue
                return try predicted(&input) { Prediction($0) }
            }
        }
    }

    /// Predict the windows that the next samples of a sound complete. The library resamples to the card's rate, cuts
    /// windows, computes features, and keeps the model's states from window to window.
    ///
    /// - Parameters:
    ///   - samples: one channel from -1 to 1, of any length, for example of an `AVAudioPCMBuffer`.
    ///   - rate: in Hz, the same for the whole sound.
    ///   - begins: whether another sound begins, from the states before the first run.
    ///   - ends: whether the sound ends: zeros fill up its last window.
    /// - Throws: `EdgeKitError`: no variant works any more, or the card's input or task is not one of libedgekit.
    public func listen(
        _ samples: [Float], rate: Int, begins: Bool = false, ends: Bool = false
    ) throws -> [Window] {
        try locked {
            var window = try samples.withUnsafeBufferPointer { values in
                var input = edgekit_input()
                input.kind = Int32(EDGEKIT_SOUND)
                input.values = UnsafeRawPointer(values.baseAddress)
                input.count = values.count
                input.rate_hz = Int32(clamping: rate)
                input.begins = begins ? 1 : 0
                input.ends = ends ? 1 : 0
                return try predicted(&input) { Window($0) }
            }
            var windows: [Window] = []
            while !window.prediction.items.isEmpty {
                windows.append(window)
                window = try predicted(nil) { Window($0) }
            }
            return windows
        }
    }

    private func predicted<Result>(
        _ input: UnsafePointer<edgekit_input>?, _ convert: (edgekit_prediction) -> Result
    ) throws -> Result {
        guard let made = edgekit_predict(session, input) else { throw EdgeKitError.last() }
        defer { edgekit_free_prediction(made) }
        return convert(made.pointee)
    }

    /// Run the model on arrays, for example where the card is of neither a picture nor a sound.
    ///
    /// - Parameter arrays: each input's array by its name.
    /// - Returns: each output's array by its name.
    /// - Throws: `EdgeKitError`: an array is missing or does not fit, or no variant works any more.
    public func run(_ arrays: [String: Tensor]) throws -> [String: Tensor] {
        var held: [UnsafeMutableRawPointer] = []
        defer { held.forEach { free($0) } }
        func text(_ value: String) -> UnsafePointer<CChar>? {
            guard let copy = strdup(value) else { return nil }
            held.append(UnsafeMutableRawPointer(copy))
            return UnsafePointer(copy)
        }
        let tensors: [edgekit_tensor] = try inputs.map { spec in
            guard let array = arrays[spec.name], array.shape.count <= Int(EDGEKIT_RANK_LIMIT) else {
                throw EdgeKitError(description: "input \(spec.name) is missing, or has too many dimensions")
            }
            guard let bytes = malloc(max(array.data.count, 1)) else {
                throw EdgeKitError(description: "out of memory")
            }
            held.append(bytes)
            array.data.copyBytes(to: bytes.assumingMemoryBound(to: UInt8.self), count: array.data.count)
            var tensor = edgekit_tensor()
            tensor.name = text(spec.name)
            tensor.dtype = text(array.dtype)
            tensor.sizes = array.shape
            tensor.bytes = bytes
            tensor.size_bytes = array.data.count
            return tensor
        }
        return try locked {
            var made: UnsafePointer<edgekit_tensor>?
            guard edgekit_run(session, tensors, Int32(tensors.count), &made) == 0, let made else {
                throw EdgeKitError.last()
            }
            var results: [String: Tensor] = [:]
            for tensor in UnsafeBufferPointer(start: made, count: outputs.count) {
                let data = tensor.bytes.map { Data(bytes: $0, count: tensor.size_bytes) } ?? Data()
                results[String(cString: tensor.name)] = Tensor(
                    dtype: String(cString: tensor.dtype), shape: tensor.sizes, data: data)
            }
            return results
        }
    }

    private func locked<Result>(_ action: () throws -> Result) rethrows -> Result {
        lock.lock()
        defer { lock.unlock() }
        return try action()
    }

    private static func specs(_ bundle: OpaquePointer, _ what: Int32) -> [TensorSpec] {
        (0..<edgekit_count(bundle, what)).map { index in
            var tensor = edgekit_tensor()
            edgekit_tensor_at(bundle, what, index, &tensor)
            return TensorSpec(tensor)
        }
    }

    /// Return Core ML, and ONNX Runtime and LiteRT if the app is linked with them.
    private static func engines() -> [UnsafePointer<edgekit_engine>?] {
        var all: [UnsafePointer<edgekit_engine>?] = []
        #if canImport(CoreML)
            all.append(CoreMLEngine.table)
        #endif
        for target in ["ort", "tflite"] {
            if let engine = edgekit_adapter(target, nil) { all.append(engine) }
        }
        return all
    }
}
