"""A browser on the page of a directory: `session.py PART URL [FOLDER STRANGE [PICTURE]]`.

PART is `write` (a folder of files is dropped, searched, previewed, renamed and deleted, at the
width of a phone, and one with strange names is uploaded by a button), `read` (a server that may not be written) or `plain` (without JavaScript).
PICTURE is where a screenshot goes. Each wait ends with an event of the page, or fails after two
minutes.
"""

import sys

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

PART, URL = sys.argv[1:3]


def start():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for word in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]:
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    if PART == "plain":
        blocked = {"profile.managed_default_content_settings.javascript": 2}
        options.add_experimental_option("prefs", blocked)
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)


browser = start()


def script(text, *words):
    return browser.execute_script(text, *words)


def until(what, condition):
    WebDriverWait(browser, 120, 0.05).until(lambda _: condition(), what)


def names():
    """Names of the shown rows, in order."""
    return script(
        "return [...document.querySelectorAll('main>ul>li:not([hidden]):not(#up)>a')]"
        ".map(a => a.textContent)"
    )


def text_of(element):
    return script("return document.getElementById(arguments[0]).textContent", element)


def wait_for(part, element="status"):
    """Waits until the status, or the progress of uploads, has a text."""
    until(f"{element}: {part}", lambda: part in text_of(element))


def row(name):
    rows = browser.find_elements(By.CSS_SELECTOR, "main>ul>li")
    found = [it for it in rows if it.find_element(By.TAG_NAME, "a").text == name]
    assert len(found) == 1, f"{len(found)} rows of {name}: {names()[:20]}"
    return found[0]


def dialog():
    until("a dialog opens", lambda: browser.find_elements(By.TAG_NAME, "dialog"))
    return browser.find_element(By.TAG_NAME, "dialog")


def wait_for_no_dialog():
    until("the dialog closes", lambda: not browser.find_elements(By.TAG_NAME, "dialog"))


def press(element, text):
    element.find_element(By.XPATH, f".//button[normalize-space()='{text}']").click()


def drop(path):
    """Drops a file or directory of this machine on the page."""
    data = {"items": [], "files": [path], "dragOperationsMask": 1}
    for kind in ["dragEnter", "dragOver", "drop"]:
        event = {"type": kind, "x": 150, "y": 300, "data": data}
        browser.execute_cdp_cmd("Input.dispatchDragEvent", event)


def check_width():
    wide, window = script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window, f"the page is {wide} px wide in a window of {window}"


def check_log(allowed):
    """Nothing was refused by the policy, no script failed; `allowed` statuses were asked for."""
    for entry in browser.get_log("browser"):
        message = entry["message"]
        is_expected = any(f"status of {status}" in message for status in allowed)
        is_bad = entry["level"] == "SEVERE" and not is_expected and "favicon" not in message
        assert not is_bad, message


def phone():
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def write(folder, strange, picture):
    phone()
    browser.get(URL)
    assert names() == [], names()
    check_width()
    upload(folder)
    search_below()
    look(picture)
    change()
    open_strange(strange)
    # 404 and 405: folders that are not or already there. 412: files that are there.
    check_log([405, 412, 416])


def upload(folder):
    drop(folder)
    wait_for("1003 of 1003 files uploaded.", "uploads")
    until("the folder is listed", lambda: names() == ["folder/"])
    print("uploaded a folder of 1,003 files by drag and drop")

    drop(folder)
    assert "Replace 1003 files?" in dialog().text
    press(dialog(), "Cancel")
    wait_for("0 of 1003 files uploaded.", "uploads")
    assert text_of("uploads").count("not replaced") == 1003
    print("asked before 1,003 files were replaced")



def search_below():
    search = browser.find_element(By.CSS_SELECTOR, "input[type=search]")
    search.send_keys("file 77")
    press(browser.find_element(By.ID, "bar"), "Search below")
    wait_for("11 found in 12 directories.")
    assert "folder/part 7/file 77.txt" in names(), names()
    # Two at once: the later one is shown.
    search.send_keys(Keys.BACKSPACE, Keys.BACKSPACE, Keys.ENTER)
    wait_for("1000 found in ")
    search.send_keys("88", Keys.ENTER)
    wait_for("11 found in 12 directories.")
    assert len(names()) == 11 and all("file 88" in it for it in names()), names()
    search.clear()
    search.send_keys("x", Keys.BACKSPACE)
    until("the directory is listed again", lambda: names() == ["folder/"])
    print("found 11 files below, and went back")



def look(picture):
    row("folder/").find_element(By.TAG_NAME, "a").click()
    until("the folder opens", lambda: "folder" in browser.current_url and len(names()) == 13)
    parts = [f"part {number}/" for number in range(10)]
    assert names() == parts + ["empty.txt", "picture.png", "readme.txt"], names()
    browser.find_element(By.CSS_SELECTOR, "select").send_keys("Largest")
    until("it is sorted by size", lambda: names()[-1] == "empty.txt")
    assert names()[:10] == parts and names()[10] == "readme.txt", names()
    check_width()
    if picture:
        browser.save_screenshot(picture)

    browser.find_element(By.LINK_TEXT, "picture.png").click()
    loaded = "const it = document.querySelector('dialog img'); return it && it.naturalWidth"
    until("the picture is shown", lambda: script(loaded) == 3)
    press(dialog(), "Next")
    shown = "return document.querySelector('dialog pre')?.textContent"
    until("the next preview", lambda: "The file is empty." in dialog().text)
    press(dialog(), "Next")
    until("the text is shown", lambda: (script(shown) or "").startswith("<b>line 0</b>\n"))
    assert "the first 64 KiB of 99 KiB" in script(shown), script(shown)[-100:]
    check_width()
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    wait_for_no_dialog()
    print("previewed a picture and texts")



def change():
    row("readme.txt").find_element(By.XPATH, ".//button[@title='Rename']").click()
    field = dialog().find_element(By.TAG_NAME, "input")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("größer & <b>.txt", Keys.ENTER)
    wait_for("Renamed readme.txt to größer & <b>.txt.")
    assert "größer & <b>.txt" in names(), names()
    row("empty.txt").find_element(By.TAG_NAME, "a").send_keys(Keys.F2)
    field = dialog().find_element(By.TAG_NAME, "input")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("picture.png", Keys.ENTER)
    wait_for("there is something of that name already")
    print("renamed a file, and refused a name in use")

    row("empty.txt").find_element(By.TAG_NAME, "a").send_keys(Keys.DELETE)
    press(dialog(), "Delete")
    wait_for("Deleted empty.txt.")
    row("part 3/").find_element(By.XPATH, ".//button[@title='Delete']").click()
    assert "everything in it" in dialog().text
    press(dialog(), "Delete")
    wait_for("Deleted part 3.")
    assert "part 3/" not in names() and "empty.txt" not in names()
    print("deleted a file by keyboard, and a folder")

    press(browser.find_element(By.ID, "bar"), "New folder")
    dialog().find_element(By.TAG_NAME, "input").send_keys("made", Keys.ENTER)
    wait_for("Created made.")
    assert "made/" in names()
    heading = browser.find_element(By.TAG_NAME, "h1")
    heading.find_element(By.LINK_TEXT, "/").click()
    until("the root is listed", lambda: names() == ["folder/"])


def open_strange(strange):
    """Uploads a folder with strange names by its button, twice, and opens what is in it."""
    picker = browser.find_element(By.CSS_SELECTOR, "input[webkitdirectory]")
    picker.send_keys(strange)
    wait_for("5 of 5 files uploaded.", "uploads")
    picker.send_keys(strange)
    assert "Replace 5 files?" in dialog().text
    assert script("return document.activeElement.textContent") == "Cancel"
    press(dialog(), "Replace")
    until("they are replaced", lambda: not text_of("uploads").startswith("0"))
    wait_for("5 of 5 files uploaded.", "uploads")
    until("the folder is listed", lambda: names() == ["folder/", "strange/"])
    row("strange/").find_element(By.TAG_NAME, "a").click()
    listed = ["a:b", "file 2.txt", "file 10.txt", "what? 100%.txt", "x#y.txt"]
    until("the names are listed in order", lambda: names() == listed)
    for name in ["what? 100%.txt", "x#y.txt"]:
        browser.find_element(By.LINK_TEXT, name).click()
        shown = "return document.querySelector('dialog pre')?.textContent"
        until(f"{name} is shown", lambda: script(shown) == f"{name}\n")
        browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        wait_for_no_dialog()
    row("a:b").find_element(By.XPATH, ".//button[@title='Rename']").click()
    field = dialog().find_element(By.TAG_NAME, "input")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("c:d", Keys.ENTER)
    wait_for("Renamed a:b to c:d.")
    row("c:d").find_element(By.XPATH, ".//button[@title='Delete']").click()
    press(dialog(), "Delete")
    wait_for("Deleted c:d.")
    print("uploaded and replaced files with strange names by a button")


def read():
    phone()
    browser.get(URL)
    until("the files are listed", lambda: "readme.txt" in names())
    buttons = [it.text for it in browser.find_elements(By.TAG_NAME, "button")]
    assert buttons == ["Search below"], buttons
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys("/")
    browser.switch_to.active_element.send_keys("READ")
    until("others are hidden", lambda: names() == ["readme.txt"])
    assert "1 of 13 here" in text_of("status"), text_of("status")
    browser.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys(Keys.TAB)
    browser.find_element(By.CSS_SELECTOR, "h1").click()
    body.send_keys(Keys.ARROW_DOWN)
    body_text = "return document.activeElement.textContent"
    until("a row has the focus", lambda: script(body_text) == "readme.txt")
    browser.switch_to.active_element.send_keys(Keys.DELETE)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    until("the preview opens", lambda: "line 0" in dialog().text)
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    wait_for_no_dialog()
    check_log([])
    print("searched and previewed by keyboard; nothing to write with")


def plain():
    browser.get(URL)
    links = browser.find_elements(By.CSS_SELECTOR, "ul>li>a")
    assert len(links) == 13, len(links)
    assert not browser.find_elements(By.CSS_SELECTOR, "input, button")
    browser.find_element(By.LINK_TEXT, "part 0/").click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "ul>li>a")) == 101
    browser.find_element(By.LINK_TEXT, "file 0.txt").click()
    assert browser.find_element(By.TAG_NAME, "body").text == "file 0"
    print("went from listing to listing to a file")


try:
    if PART == "write":
        write(sys.argv[3], sys.argv[4], sys.argv[5] if len(sys.argv) > 5 else None)
    elif PART == "read":
        read()
    else:
        plain()
finally:
    browser.quit()
