import edgekit

with edgekit.open("chat.edgekit") as session:
    result = session.predict("Hello", max_tokens=4, temperature=0.0)
    print(result.tokens, result.reason)
    print("".join(session.generate("Hello", max_tokens=4, temperature=0.0)) == result.text)

with edgekit.TextSession("chat.edgekit") as session:
    print(session.predict("Hello", max_tokens=2).tokens)
