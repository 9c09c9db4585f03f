"""`ipot serve`: a page and an API for trained models, on this machine; or a page without a server.

    application   what is asked by which address, and the one place where errors become answers
    routes        what each address does
    question      what a request may say, as JSON or npz; answers in the same two forms
    limits        how large a question may be, and the memory that all requests share
    worker        the one thread that models answer in, and its bounded queue
    models        the models that are served: names, loading in the background
    facts         what the server says of a model
    extras        what the page shows of a problem that is in no sample
    uploads       files of one's own, in a private folder that is removed
    truth         the problems' own solvers on given inputs; `solving` runs them in a process apart
    gate          who may ask: host names, origins, headers of every answer
    listening     sockets, slow clients, start and end
    metrics       counters as Prometheus reads them
    schema        the OpenAPI description
    page          the built page, static files
    static        the page as a folder that needs no server: `ipot serve --export`

Nothing here imports torch before a model is loaded, so that the page is there at once.
"""
