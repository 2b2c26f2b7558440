"""Keras backs up each epoch, goes on from that, and removes the folder once all is done.

KERAS_BACKEND names the library below it. Without `shuffle=False` a resumed run would see the data
in another order, because Keras saves no state of its random numbers.
"""

import json
import threading

import keras
import numpy as np

EPOCHS = 240
pause = threading.Event()


class Progress(keras.callbacks.Callback):
    first = True

    def on_epoch_begin(self, epoch, logs=None):
        if self.first:
            print("starts at", epoch, flush=True)
            self.first = False

    def on_epoch_end(self, epoch, logs=None):
        print("step", epoch + 1, flush=True)
        pause.wait(0.3)


keras.utils.set_random_seed(1)
random = np.random.default_rng(1)
x = random.normal(size=(256, 8)).astype("float32")
y = x @ np.arange(8, dtype="float32")
model = keras.Sequential(
    [keras.Input((8,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)]
)
model.compile("adam", "mse")
backup = keras.callbacks.BackupAndRestore("ck")
model.fit(
    x, y, epochs=EPOCHS, batch_size=64, shuffle=False, verbose=0, callbacks=[backup, Progress()]
)
end = {"iterations": int(model.optimizer.iterations), "loss": model.evaluate(x, y, verbose=0)}
print("end", json.dumps(end))
