# The first hour of a student who knows numpy: two arrays in, a model out.
# In an empty folder: bash student.sh
set -e

python - <<'EOF'
import numpy as np

import ipot

# Two arrays: 200 random waves at 300 points, and what is to be learned from each.
rng = np.random.default_rng(0)
x = rng.random((300, 2))
a = rng.random((200, 3)) @ np.sin(6 * x[:, 0] + np.arange(3)[:, None])
u = a**2 * x[:, 1]

# Train on most of them, and look at the error on the others.
data = ipot.Dataset.from_arrays(points=x, values=a, targets=u)
train, test = data.split(0.9)
model = ipot.fit(train, minutes=2)
print(f"error on {len(test)} new samples: {100 * model.evaluate(test).relative_l2:.1f} %")

# Ask at other places, and how far to trust the answer.
anywhere = rng.random((1000, 2))
answer, low, high = model.predict(points=x, values=a[0], queries=anywhere, interval=0.9)
print(f"{answer.shape[0]} answers, the bounds are {np.mean(high - low):.2f} apart")

# A picture, and a folder that loads again.
model.plot(test[0], "fields.png")
model.save("surrogate")
again = ipot.load("surrogate")
print(np.abs(again.predict(points=x, values=a[0], queries=anywhere) - answer).max(), "apart")
np.savez("waves.npz", points=x, a=a, u=u)
EOF

# The same from a file, in the shell.
ipot data inspect waves.npz
ipot fit waves.npz --inputs a --targets u --minutes 2 --out from_file
ipot evaluate from_file waves.npz
ipot predict from_file waves.npz --out answers.h5
