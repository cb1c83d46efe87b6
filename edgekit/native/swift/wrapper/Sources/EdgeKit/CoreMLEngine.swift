#if canImport(CoreML)
    import CEdgeKit
    import CoreML
    import Foundation

    /// Core ML as an engine of the target "coreml": the table of functions that edgekit.h describes.
    enum CoreMLEngine {
        static let table: UnsafePointer<edgekit_engine> = {
            let table = UnsafeMutablePointer<edgekit_engine>.allocate(capacity: 1)  // for the life of the app
            table.initialize(
                to: edgekit_engine(
                    target: UnsafePointer(strdup("coreml")), context: nil, load: load, run: run, unload: unload))
            return UnsafePointer(table)
        }()

        private static let load:
            @convention(c) (
                UnsafeMutableRawPointer?, UnsafePointer<edgekit_model>?, UnsafeMutablePointer<CChar>?, Int
            ) -> UnsafeMutableRawPointer? = { _, model, error, size in
                guard let model else { return nil }
                do {
                    return Unmanaged.passRetained(try CoreMLModel(model.pointee)).toOpaque()
                } catch let problem {
                    CoreMLEngine.write("Core ML did not load the variant: \(problem)", to: error, size)
                    return nil
                }
            }

        private static let run:
            @convention(c) (
                UnsafeMutableRawPointer?, UnsafePointer<edgekit_tensor>?, Int32, UnsafeMutablePointer<edgekit_tensor>?,
                Int32, UnsafeMutablePointer<CChar>?, Int
            ) -> Int32 = { loaded, inputs, inputCount, outputs, outputCount, error, size in
                guard let loaded, let outputs else { return 1 }
                let model = Unmanaged<CoreMLModel>.fromOpaque(loaded).takeUnretainedValue()
                do {
                    try model.run(
                        UnsafeBufferPointer(start: inputs, count: Int(inputCount)),
                        UnsafeMutableBufferPointer(start: outputs, count: Int(outputCount)))
                    return 0
                } catch let problem {
                    CoreMLEngine.write("Core ML did not run: \(problem)", to: error, size)
                    return 1
                }
            }

        private static let unload: @convention(c) (UnsafeMutableRawPointer?) -> Void = { loaded in
            if let loaded { Unmanaged<CoreMLModel>.fromOpaque(loaded).release() }
        }

        private static func write(_ text: String, to error: UnsafeMutablePointer<CChar>?, _ size: Int) {
            guard let error, size > 0 else { return }
            _ = text.withCString { strncpy(error, $0, size - 1) }
            error[size - 1] = 0
        }
    }

    /// A loaded package. Its inputs and outputs have names, dtypes and shapes of their own in the variant's options.
    private final class CoreMLModel {
        private struct Value: Decodable {
            let name, mil, dtype: String
            let shape: [Int]
        }
        private struct Options: Decodable {
            let inputs, outputs: [Value]
        }
        private struct Problem: Error, CustomStringConvertible {
            let description: String
        }

        private let folder: URL
        private let model: MLModel
        private let options: Options
        private var held: [UnsafeMutableRawPointer] = []  // outputs of the last run

        init(_ given: edgekit_model) throws {
            let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
            do {
                options = try JSONDecoder().decode(Options.self, from: Data(String(cString: given.options_json).utf8))
                let package = try CoreMLModel.unpack(given, into: folder)
                let compiled = try MLModel.compileModel(at: package)
                try FileManager.default.moveItem(at: compiled, to: folder.appendingPathComponent("model.mlmodelc"))
                try FileManager.default.removeItem(at: package)
                model = try MLModel(contentsOf: folder.appendingPathComponent("model.mlmodelc"))
            } catch {
                try? FileManager.default.removeItem(at: folder)
                throw error
            }
            self.folder = folder
        }

        deinit {
            held.forEach { $0.deallocate() }
            try? FileManager.default.removeItem(at: folder)
        }

        func run(
            _ inputs: UnsafeBufferPointer<edgekit_tensor>, _ outputs: UnsafeMutableBufferPointer<edgekit_tensor>
        ) throws {
            held.forEach { $0.deallocate() }
            held = []
            var features: [String: MLMultiArray] = [:]
            for tensor in inputs {
                let value = try described(String(cString: tensor.name), options.inputs)
                features[value.mil] = try array(tensor, value)
            }
            let made = try model.prediction(from: MLDictionaryFeatureProvider(dictionary: features))
            for index in outputs.indices {
                let value = try described(String(cString: outputs[index].name), options.outputs)
                guard let array = made.featureValue(for: value.mil)?.multiArrayValue else {
                    throw Problem(description: "the package gives no array \(value.mil)")
                }
                try fill(&outputs[index], from: array)
            }
        }

        private func described(_ name: String, _ values: [Value]) throws -> Value {
            guard let value = values.first(where: { $0.name == name }) else {
                throw Problem(description: "the variant's options do not name \(name)")
            }
            return value
        }

        /// Return a tensor as the package's array. Only the dtypes that such packages have are converted.
        private func array(_ tensor: edgekit_tensor, _ value: Value) throws -> MLMultiArray {
            let dtype = String(cString: tensor.dtype)
            guard let bytes = tensor.bytes else { throw Problem(description: "input \(value.name) has no values") }
            let count = value.shape.reduce(1, *)
            func scalars<Scalar: Numeric>(_: Scalar.Type) throws -> UnsafeBufferPointer<Scalar> {
                guard tensor.size_bytes == count * MemoryLayout<Scalar>.stride else {
                    throw Problem(description: "input \(value.name) has another size in the package")
                }
                return UnsafeBufferPointer(start: UnsafePointer(bytes.assumingMemoryBound(to: Scalar.self)), count: count)
            }
            switch (dtype, value.dtype) {
            case ("float32", "float32"):
                return MLMultiArray(MLShapedArray<Float>(scalars: try scalars(Float.self), shape: value.shape))
            case ("int32", "int32"):
                return MLMultiArray(MLShapedArray<Int32>(scalars: try scalars(Int32.self), shape: value.shape))
            case ("int64", "int32"):
                let narrow = try scalars(Int64.self).map { wide in
                    guard let number = Int32(exactly: wide) else {
                        throw Problem(description: "input \(value.name) has the value \(wide), beyond int32")
                    }
                    return number
                }
                return MLMultiArray(MLShapedArray<Int32>(scalars: narrow, shape: value.shape))
            default:
                throw Problem(description: "input \(value.name) is \(dtype), and \(value.dtype) in the package")
            }
        }

        /// Copy an array, whose rows may be padded, to a tensor of the model's dtype.
        private func fill(_ tensor: inout edgekit_tensor, from array: MLMultiArray) throws {
            switch String(cString: tensor.dtype) {
            case "float32": keep(MLShapedArray<Float>(converting: array).scalars, in: &tensor)
            case "int32": keep(MLShapedArray<Int32>(converting: array).scalars, in: &tensor)
            case "int64": keep(MLShapedArray<Int32>(converting: array).scalars.map { Int64($0) }, in: &tensor)
            case let dtype:
                throw Problem(description: "output \(String(cString: tensor.name)) is \(dtype), which is not converted")
            }
        }

        private func keep<Scalar>(_ scalars: [Scalar], in tensor: inout edgekit_tensor) {
            let size = scalars.count * MemoryLayout<Scalar>.stride
            let bytes = UnsafeMutableRawPointer.allocate(byteCount: max(size, 1), alignment: 16)
            scalars.withUnsafeBytes { bytes.copyMemory(from: $0.baseAddress ?? UnsafeRawPointer(bytes), byteCount: size) }
            held.append(bytes)
            tensor.bytes = bytes
            tensor.size_bytes = size
        }

        /// Write the package's files and return the package. The bundle's reader has checked their names.
        private static func unpack(_ given: edgekit_model, into folder: URL) throws -> URL {
            for index in 0..<Int(given.file_count) {
                guard let name = given.file_names[index], let bytes = given.file_bytes[index] else { continue }
                let file = folder.appendingPathComponent(String(cString: name))
                let parent = file.deletingLastPathComponent()
                try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
                try Data(bytes: bytes, count: given.file_sizes[index]).write(to: file)
            }
            return folder.appendingPathComponent("model.mlpackage")
        }
    }
#endif
