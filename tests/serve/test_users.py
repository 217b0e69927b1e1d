"""Who may do what: every route for every role, and the ways to sign in."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from hiero.cli import app
from hiero.serve.app import ROUTERS, STATIC
from hiero.serve.database import FILE_NAME
from hiero.serve.guard import OPEN_PATHS
from hiero.serve.routing import RoleCheck
from hiero.serve.settings import ServerSettings
from hiero.serve.state import State
from hiero.serve.users import ROLES, token_digest
from tests.processes import run_hiero
from tests.serve.conftest import connect

OPEN = "open"  # to people who have not signed in
ROLE_OF_METHOD = {"GET": "view", "POST": "edit", "PUT": "edit", "DELETE": "edit"}
EXCEPTIONS = {
    "POST /api/videos/{id}/recipe": "view",
    "GET /api/folders": "admin",
    "POST /api/folders": "admin",
    "GET /api/tokens": "admin",
    "GET /api/audit": "admin",
    "POST /api/sign-in": OPEN,
    "POST /api/sign-out": OPEN,
    "GET /healthz": OPEN,
    "GET /readyz": OPEN,
}


def role_of(route):
    return EXCEPTIONS.get(route, ROLE_OF_METHOD[route.split()[0]])


@pytest.fixture
def state(tmp_path):
    state = State(tmp_path / "state")
    for role in ROLES:
        state.add_token(f"{role}er", role, token_digest(f"token-{role}"))
    return state


@pytest.fixture
def client(library, state, tmp_path):
    settings = ServerSettings(upload=tmp_path, upload_limit=1)
    with connect(library, settings, state, raise_server_exceptions=False) as client:
        yield client


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def all_routes(client):
    """Method and path of every route that the API describes, and of the description."""
    paths = client.get("/openapi.json", headers=bearer("token-view")).json()["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods} | {"GET /openapi.json"}


def test_every_route_declares_a_role(client):
    """A route on a router without a role fails here; whoever needs none says so, and the guard knows it."""
    declared = {}
    for router in ROUTERS:
        for route in router.routes:
            roles = [d.call.role for d in route.dependant.dependencies if isinstance(d.call, RoleCheck)]
            assert len(roles) == 1, f"{route.path} declares no role"
            for method in route.methods:
                declared[f"{method} {route.path}"] = roles[0] or OPEN
    assert declared == {route: role_of(route) for route in declared}
    assert EXCEPTIONS.keys() <= declared.keys()
    assert len(declared) == 40  # a new route needs a look at its role
    assert {route.split()[1] for route, role in declared.items() if role == OPEN} == set(OPEN_PATHS)


@pytest.mark.slow
def test_every_route_for_every_role(client, library):
    entry = library.find_by_name("tea")
    for route in all_routes(client):
        needed, (method, path) = role_of(route), route.split()
        # Ids that exist where reading is allowed to everyone, so that an answer is a real one; changes go nowhere.
        id = entry.id if method == "GET" else "nothing"
        path = path.replace("{id}", id).replace("{format}", "csv").replace("{number}", "1")
        path = path.replace(f"/jobs/{id}", "/jobs/nothing")
        params = {"q": "a cup", "t": "1", "video": "tea", "name": "x.mp4"} if "/api/" in path else {}
        body = {"labels": ["a"], "token": "wrong"} if method in ("POST", "PUT") else None
        for role in (None, *ROLES):
            headers = {} if role is None else bearer(f"token-{role}")
            status = client.request(method, path, params=params, json=body, headers=headers).status_code
            if needed == OPEN:
                assert status not in (403, 500), (route, role, status)
            elif role is None:
                assert status == 401, (route, role, status)
            elif ROLES.index(role) < ROLES.index(needed):
                assert status == 403, (route, role, status)
            else:
                assert status not in (401, 403, 500), (route, role, status)


def test_the_page_itself_needs_no_token_and_holds_nothing(client):
    for path in ("/", "/app.js", "/style.css"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "tea" not in answer.text.split()


def test_sign_in_by_a_cookie_that_scripts_cannot_read(client):
    assert client.post("/api/sign-in", json={"token": "wrong"}).status_code == 401
    answer = client.post("/api/sign-in", json={"token": "token-edit"})
    assert answer.json() == {"name": "editer", "role": "edit"}
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "Secure" not in cookie  # the test speaks http
    assert client.get("/api/me").json() == {"name": "editer", "role": "edit", "sign_in": True}
    client.post("/api/sign-out")
    assert client.get("/api/me").status_code == 401


def test_a_dead_cookie_is_cleared(client, state):
    client.post("/api/sign-in", json={"token": "token-edit"})
    state.revoke_token("editer")
    answer = client.post("/api/sign-out")
    assert answer.status_code == 200
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert not client.cookies


@pytest.fixture
def shared(library, state):
    """A client of a server that was started with a token."""
    with connect(library, ServerSettings(token="token-shared"), state) as client:
        yield client


def test_the_token_in_the_printed_address_is_moved_to_a_cookie(shared):
    assert shared.get("/api/videos?token=token-shared").status_code == 401  # of the page alone
    answer = shared.get("/?token=token-shared", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert shared.get("/api/me").json()["name"] == "token"


@pytest.mark.parametrize("address", ["/?token=token-edit", "/?token=wrong"])
def test_an_address_with_the_token_of_a_person_signs_nobody_in(shared, address):
    assert shared.get(address, follow_redirects=False).status_code == 303  # nothing stays in the address
    assert not shared.cookies


def test_an_address_changes_nothing_for_people_who_have_signed_in(shared):
    shared.post("/api/sign-in", json={"token": "token-edit"})
    for token in ("token-view", "token-shared"):
        shared.get(f"/?token={token}")
        assert shared.get("/api/me").json()["name"] == "editer"


def test_a_link_on_another_site_signs_nobody_in(shared):
    shared.get("/?token=token-shared", headers={"Sec-Fetch-Site": "cross-site"}, follow_redirects=False)
    assert not shared.cookies


def test_a_revoked_token_is_worthless_at_once(client, state):
    assert client.get("/api/me", headers=bearer("token-edit")).status_code == 200
    state.revoke_token("editer")
    assert client.get("/api/me", headers=bearer("token-edit")).status_code == 401
    for token in state.tokens():
        state.revoke_token(token.name)
    assert client.get("/api/me").status_code == 401  # a server without a valid token is closed, not open


def test_tokens_by_the_command_line(tmp_path):
    def run(*arguments):
        return run_hiero("serve", "token", *arguments, "--state", tmp_path / "state", check=False)

    token = run("add", "anna", "--role", "edit").stdout.strip()
    assert len(token) >= 32
    stored = b"".join(file.read_bytes() for file in (tmp_path / "state").iterdir())
    assert token.encode() not in stored  # hashed at rest
    assert run("list").stdout.split("\t")[:2] == ["anna", "edit"]
    assert "the earlier token of anna is no longer valid" in run("add", "anna", "--role", "edit").stderr
    assert "earlier" not in run("add", "ben").stderr
    assert run("revoke", "ben").returncode == 0
    assert run("revoke", "anna").returncode == 0
    assert "revoked" in run("list").stdout
    assert "no valid token" in run("revoke", "anna").stderr
    assert "a name must have" in run("add", "an na").stderr
    actions = [line["action"] for line in State(tmp_path / "state").audit(9)]
    assert actions == ["revoke token", "revoke token", "add token", "add token", "add token"]


@pytest.mark.parametrize("created_at", ["yesterday", 9e999, -1e300])
def test_a_token_without_a_possible_date_is_listed(client, state, created_at, capsys):
    with closing(sqlite3.connect(state.folder / FILE_NAME)) as database, database:
        database.execute("UPDATE tokens SET created_at = ? WHERE name = 'viewer'", [created_at])
    app(["serve", "token", "list", "--state", str(state.folder)], result_action="return_value")
    assert capsys.readouterr().out.splitlines()[-1].split("\t") == ["viewer", "view", "unknown", "valid"]
    assert client.get("/api/tokens", headers=bearer("token-admin")).json()[-1]["created_at"] is None


def test_the_hint_on_the_page_is_a_command_that_works(tmp_path):
    (hint,) = re.findall(r"\"hiero (serve token .*?)\"", (STATIC / "shell.js").read_text())
    arguments = [{"NAME": "anna", "FOLDER": tmp_path}.get(word, word) for word in hint.split()]
    assert len(run_hiero(*arguments, check=False).stdout.strip()) >= 32
    assert [token.name for token in State(tmp_path).tokens()] == ["anna"]


def test_every_change_leaves_a_line(client, library, state):
    entry = library.find_by_name("tea")
    headers = bearer("token-edit")
    steps = client.get(f"/api/videos/{entry.id}/steps", headers=headers).json()
    assert client.put(f"/api/videos/{entry.id}/edits", json=steps, headers=headers).status_code == 200
    assert client.delete(f"/api/videos/{entry.id}/edits", headers=headers).status_code == 200
    job = client.post(f"/api/videos/{entry.id}/read", headers=headers).json()
    client.delete(f"/api/jobs/{job['id']}", headers=headers)
    lines = client.get("/api/audit", headers=bearer("token-admin")).json()
    assert [line["action"] for line in lines][::-1] == ["save edits", "forget edits", "read video", "cancel job"]
    assert {line["user"] for line in lines} == {"editer"}
    assert "token-edit" not in json.dumps(lines)


def test_people_whom_a_proxy_knows(library, state):
    settings = ServerSettings(user_header="Remote-User", trusted_proxy=["10.0.0.0/8"])
    with connect(library, settings, state, client=("10.1.2.3", 1)) as client:
        assert client.get("/api/me").status_code == 401
        assert client.get("/api/me", headers={"Remote-User": "zoe"}).json()["role"] == "view"
        assert client.get("/api/me", headers={"Remote-User": "editer"}).json()["role"] == "edit"  # as their token says
        assert client.get("/api/me", headers={"Remote-User": "a\tb"}).status_code == 401
    with connect(library, settings, state, client=("192.168.1.1", 1)) as client:
        assert client.get("/api/me", headers={"Remote-User": "editer"}).status_code == 401  # anyone can send a header
    with connect(library, replace(settings, header_role="none"), state, client=("10.1.2.3", 1)) as client:
        assert client.get("/api/me", headers={"Remote-User": "zoe"}).status_code == 401
