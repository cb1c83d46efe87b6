package org.edgekit.sample;

import android.app.Activity;
import android.content.res.AssetFileDescriptor;
import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.os.Bundle;
import android.widget.TextView;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import org.tensorflow.lite.Interpreter;

/** Shows by how many degrees the page in the assets is turned, by the .tflite file that EdgeKit exported. */
public final class MainActivity extends Activity {
    // The card of the model: samples/classify_image/card.toml.
    private static final int SIZE = 224;
    private static final float CROP = 0.875f;
    private static final float[] MEAN = {123.675f, 116.28f, 103.53f};
    private static final float[] STD = {58.395f, 57.12f, 57.375f};
    private static final String[] LABELS = {"0", "90", "180", "270"};

    @Override
    protected void onCreate(Bundle state) {
        super.onCreate(state);
        TextView view = new TextView(this);
        view.setTextSize(24);
        setContentView(view);
        try (InputStream file = getAssets().open("page.png")) {
            view.setText(classify(BitmapFactory.decodeStream(file)));
        } catch (IOException problem) {
            view.setText(problem.toString());
        }
    }

    private String classify(Bitmap picture) throws IOException {
        float[][] scores = new float[1][LABELS.length];
        try (Interpreter interpreter = new Interpreter(model())) {
            interpreter.run(prepare(picture), scores);
        }
        int best = 0;
        for (int index = 1; index < LABELS.length; index++) {
            if (scores[0][index] > scores[0][best]) best = index;
        }
        return LABELS[best] + "°  " + scores[0][best];
    }

    /** The middle of the picture as float32 [1, 3, 224, 224], RGB, normalised. */
    private static float[][][][] prepare(Bitmap picture) {
        int side = Math.round(CROP * Math.min(picture.getWidth(), picture.getHeight()));
        int left = (picture.getWidth() - side) / 2;
        int top = (picture.getHeight() - side) / 2;
        Bitmap middle = Bitmap.createBitmap(picture, left, top, side, side);
        Bitmap small = Bitmap.createScaledBitmap(middle, SIZE, SIZE, true);
        float[][][][] input = new float[1][3][SIZE][SIZE];
        for (int y = 0; y < SIZE; y++) {
            for (int x = 0; x < SIZE; x++) {
                int pixel = small.getPixel(x, y);
                for (int channel = 0; channel < 3; channel++) {
                    int value = (pixel >> (16 - 8 * channel)) & 0xff;
                    input[0][channel][y][x] = (value - MEAN[channel]) / STD[channel];
                }
            }
        }
        return input;
    }

    private MappedByteBuffer model() throws IOException {
        try (AssetFileDescriptor asset = getAssets().openFd("classifier.tflite");
                FileInputStream stream = new FileInputStream(asset.getFileDescriptor())) {
            return stream.getChannel().map(
                    FileChannel.MapMode.READ_ONLY, asset.getStartOffset(), asset.getDeclaredLength());
        }
    }
}
