"""The programs' side of the server: everything below `/api/v1/`, JSON unless it says otherwise."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def blueprint() -> Blueprint:
    """Return the routes. Access has been asked for by `access.guard` before any of them runs."""
    api = Blueprint("api", __name__, url_prefix="/api")

    # Dash answers any path it does not know with its own page; a program that mistypes an address must not get that.
    @api.route("/", defaults={"rest": ""}, methods=METHODS)
    @api.route("/<path:rest>", methods=METHODS)
    def nothing_here(rest: str) -> tuple[Response, int]:  # pyright: ignore[reportUnusedFunction]
        return jsonify(error=f"/api/{rest}: no such address"), 404

    return api
