"""What is deployed, read where it is deployed: engine commands out of manifests.

shell       words of a command line; anything that only a shell or a cluster knows is refused
containers  Compose, Kubernetes and Helm values → containers
engines     which engine a container runs, and its arguments
arguments   an engine's arguments → kvplan's flags, by the table of its module:
            vllm, sglang, llama_server
"""
